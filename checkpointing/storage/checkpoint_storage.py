"""Checkpoints and savepoints of one job as files in any storage."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Collection, Sequence

from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import AcknowledgeCheckpoint, CheckpointKind, MalformedMessage, StateFile
from checkpointing.storage.claims import discard_claimed, discard_directory
from checkpointing.storage.errors import NotOurPool, StorageError, StorageUnreachable, UnsafeLocation
from checkpointing.storage.files import Files
from checkpointing.storage.found import checkpoint_ids, complete_checkpoints
from checkpointing.storage.layout import (
    METADATA,
    SHARED,
    TASK_OWNED,
    checkpoint_directory,
    is_checkpoint_directory,
    is_safe_location,
    is_savepoint_directory_of,
    is_shared_location,
    new_savepoint_directory,
)
from checkpointing.storage.locations import canonical, is_local, name, parent
from checkpointing.storage.memory_files import MemoryFiles
from checkpointing.storage.metadata import encode_metadata
from checkpointing.storage.opening import files_for
from checkpointing.storage.reachability import require_storage
from checkpointing.storage.roots import SavepointRoots
from checkpointing.storage.savepoint_intents import SavepointIntents
from checkpointing.storage.sweeping import OrphanSweep, Swept
from checkpointing.storage.verification import read_metadata, verify_files


class FileCheckpointStorage:
    """The storage of one job. It creates no directory before the first snapshot needs it.

    `directory` is `execution.checkpointing.dir`; if it is None, only savepoints can be taken. With `savepoint_roots`, a
    savepoint's target must be below one of them. Directories are locations of any storage; `files` replaces what a
    location would open. `owns_pool` is false once another job manager may lead, whose checkpoints may refer to any
    shared file by its content. `retained`: the job's completed checkpoints.
    """

    def __init__(
        self,
        directory: str | None,
        job_id: str,
        *,
        savepoint_roots: SavepointRoots | None = None,
        files: Files | None = None,
        owns_pool: Callable[[], bool] = lambda: True,
        intents: SavepointIntents | None = None,
        retained: Callable[[], Sequence[CompletedCheckpoint]] = tuple,
    ) -> None:
        self._owns_pool = owns_pool
        self._retained = retained
        self._intents = intents
        self._job_directory = None if directory is None else f"{canonical(directory).rstrip('/')}/{job_id}"
        self._job_id = job_id
        self._savepoint_roots = savepoint_roots
        self._given_files = files

    @property
    def job_directory(self) -> str:
        """Return the directory to which `StateFile.location` of a checkpoint is relative."""
        if self._job_directory is None:
            raise StorageError("no checkpoint directory is configured (execution.checkpointing.dir)")
        return self._job_directory

    def initialize_location(
        self, checkpoint_id: int, kind: CheckpointKind, target_directory: str | None
    ) -> CheckpointLocation:
        """Create a new, empty directory.

        For a savepoint it is `target_directory` if that has the name of a savepoint of the job, else one below it.

        Raises:
            FileExistsError: the directory exists.
            StorageUnreachable: the job has retained checkpoints, but their directory is missing. A new directory would
            be in an empty mount point, and the checkpoints would look deleted. So for such a job, no directory above
            the checkpoint's own is created.
        """
        if kind.is_savepoint:
            return self._initialize_savepoint(target_directory)
        directory = checkpoint_directory(self.job_directory, checkpoint_id)
        shared = f"{self.job_directory}/{SHARED}"
        files = self._files(directory)
        if any(parent(checkpoint.location) == self.job_directory for checkpoint in self._retained()):
            require_storage(directory, files)
            _make_in_existing(directory, files)
        else:
            files.make_directory(shared)
            files.make_directory(f"{self.job_directory}/{TASK_OWNED}")
            files.make_directory(directory, new=True)
        return CheckpointLocation(directory, shared)

    def keep_contents(self, message: AcknowledgeCheckpoint) -> AcknowledgeCheckpoint:
        """Move the state in `message` into this process's memory, if that is the storage. Raise MalformedMessage.

        The state of an ended checkpoint is dropped, because its directory no longer exists.
        """
        if not message.contents:
            return message
        directory = checkpoint_directory(self.job_directory, message.checkpoint_id)
        memory = self._files(directory)
        if not isinstance(memory, MemoryFiles):
            raise MalformedMessage(
                "AcknowledgeCheckpoint.contents: not allowed; the state must be written to the checkpoint's directory"
            )
        for location, content in message.contents.items():
            if not is_safe_location(location) or not location.startswith(f"{name(directory)}/"):
                raise MalformedMessage(f"AcknowledgeCheckpoint.contents: {location!r} is not below {name(directory)}")
            if memory.has_directory(directory):
                memory.write_durably(f"{self.job_directory}/{location}", _decoded(location, content))
        return dataclasses.replace(message, contents={})

    def write_metadata(self, checkpoint: CompletedCheckpoint) -> int:
        """Write `_metadata` durably and return its size in bytes.

        Check first that every file exists with its size, so that no checkpoint completes without one. Check also that
        the storage is available, because a driver creates missing directories.
        """
        files = self._files(checkpoint.location)
        if not checkpoint.properties.is_savepoint and is_local(checkpoint.location):
            require_storage(checkpoint.location, files)
        verify_files(checkpoint, files)
        content = encode_metadata(checkpoint)
        if checkpoint.properties.is_savepoint and not self._owns_pool():
            raise StorageError(f"{checkpoint.location}: another job manager is the leader and may be deleting it")
        files.write_durably(f"{checkpoint.location}/{METADATA}", content)
        self._ended(checkpoint.location)
        return len(content)

    def read_metadata(self, directory: str) -> CompletedCheckpoint:
        return read_metadata(directory, self._given_files)

    def discard_location(self, location: CheckpointLocation) -> None:
        """Remove a checkpoint's own directory with its content.

        A missing one is not an error. The shared pool is never changed.
        """
        try:
            discard_directory(location.directory, self._files(location.directory))
        except OSError:
            if self._intents is not None:
                self._intents.leave(location.directory)
            raise
        self._ended(location.directory)

    def discard_claimed(self, location: str) -> None:
        """Remove a claimed snapshot outside of this job's directory; see `claims`."""
        discard_claimed(location, self._files(location))

    def discard_shared(self, files: Sequence[StateFile]) -> None:
        """Remove files of this job's pool.

        Missing ones are not an error. For other files raise UnsafeLocation, and remove none.

        Raise NotOurPool before the first file that another leader's checkpoints may need.
        """
        for file in files:
            if not is_shared_location(file.location):
                raise UnsafeLocation(f"{file.location!r} is not a file of the shared pool")
        for file in files:
            if not self._owns_pool():
                raise NotOurPool(f"{self.job_directory}/{SHARED} now belongs to another leader")
            self._files(self.job_directory).remove_file(f"{self.job_directory}/{file.location}")

    def found(self, known_ids: Collection[int]) -> Sequence[CompletedCheckpoint]:
        """Return the complete checkpoints in this job's directory except the known ones."""
        if self._job_directory is None:
            return ()
        return complete_checkpoints(self._job_directory, self._files(self._job_directory), known_ids)

    def last_id(self) -> int:
        """Return the greatest ID in this job's directory, complete or not, or 0 if there is none."""
        if self._job_directory is None:
            return 0
        return max(checkpoint_ids(self._job_directory, self._files(self._job_directory)), default=0)

    def sweep(
        self,
        retained: Sequence[CompletedCheckpoint],
        unreadable_ids: Collection[int],
        may_remove: Callable[[], bool],
        unclaimed_ids: Collection[int] = (),
        claimed_ids: Collection[int] = (),
        *,
        below: int | None = None,
        first_id: int | None = None,
    ) -> Swept:
        """Remove files that will never be used again; see `sweeping`. Call it only while no driver of the job runs.

        If a driver is running, set `below`: it writes only checkpoints with this ID or higher ones. `first_id` is the
        first ID of this run of the job.
        """
        if self._job_directory is None:
            return Swept()
        files = self._files(self._job_directory)
        sweep = OrphanSweep(
            self._job_directory,
            files,
            retained,
            unreadable_ids,
            may_remove,
            unclaimed_ids,
            claimed_ids,
            below=below,
            first_id=first_id,
        )
        return sweep.run()

    def sweep_savepoints(self, may_remove: Callable[[], bool]) -> Sequence[str]:
        """Remove savepoints that other job managers began and never completed.

        Call it while no driver writes to one.
        """
        if self._intents is None:
            return ()
        return self._intents.sweep(self._savepoint_roots, may_remove, self._given_files)

    def remove_empty_directories(self) -> None:
        """Remove the directories of a job that is over, unless a checkpoint was retained."""
        if self._job_directory is None:
            return
        files = self._files(self._job_directory)
        files.remove_empty_directory(f"{self._job_directory}/{SHARED}")
        if set(files.names(self._job_directory)) <= {TASK_OWNED}:
            # A retained checkpoint needs the directory (reachability.py).
            files.remove_empty_directory(f"{self._job_directory}/{TASK_OWNED}")
            files.remove_empty_directory(self._job_directory)

    def _initialize_savepoint(self, target_directory: str | None) -> CheckpointLocation:
        if target_directory is None:
            raise StorageError("no savepoint directory was given and none is configured")
        target = canonical(target_directory)
        if self._savepoint_roots is not None:
            target = self._savepoint_roots.resolve(target)
        is_named = is_savepoint_directory_of(target, self._job_id)
        directory = target if is_named else new_savepoint_directory(target, self._job_id)
        files = self._files(directory)
        if self._intents is not None:
            self._intents.begin(directory)
        try:
            files.make_directory(directory, new=True)
        except FileExistsError:  # the directory belongs to another snapshot
            self._ended(directory)
            raise
        except OSError:
            self._remove_unstarted(directory, files)
            raise
        return CheckpointLocation(directory, None)

    def _remove_unstarted(self, directory: str, files: Files) -> None:
        """Remove a directory that may or may not have been created. If that fails now, a later sweep does it."""
        try:
            files.remove_empty_directory(directory)
        except OSError:
            if self._intents is not None:
                self._intents.leave(directory)
        else:
            self._ended(directory)

    def _ended(self, directory: str) -> None:
        if self._intents is not None and not is_checkpoint_directory(directory):
            self._intents.end(directory)

    def _files(self, location: str) -> Files:
        return self._given_files or files_for(location)


def _decoded(location: str, content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise MalformedMessage(f"AcknowledgeCheckpoint.contents: {location!r} is not base64: {error}") from error


def dispose_savepoint(path: str, roots: SavepointRoots, files: Files | None = None) -> None:
    """Remove the savepoint at `path`, which must be below `roots`. Raise SnapshotUnusable if it is not a savepoint."""
    directory = roots.resolve(path)
    files = files or files_for(directory)
    checkpoint = read_metadata(directory, files)
    if not checkpoint.properties.is_savepoint:
        raise UnsafeLocation(f"{path} is a checkpoint, which belongs to its job, not a savepoint")
    files.remove_file(f"{checkpoint.location}/{METADATA}")
    files.remove_tree(checkpoint.location)


def _make_in_existing(directory: str, files: Files) -> None:
    """Create the new `directory`. Raise StorageUnreachable if its parent no longer exists."""
    try:
        files.make_directory(directory, new=True, parents=False)
    except FileNotFoundError as error:
        raise StorageUnreachable(
            f"{directory}: {parent(directory)} no longer exists; its storage may not be mounted"
        ) from error
