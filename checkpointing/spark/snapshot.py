"""Stores one query's part of a checkpoint: copies the staged files into checkpoint storage, subtask by subtask."""

from __future__ import annotations

import base64
import errno
import logging
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.checkpoint_location.layout import BatchFile, IncompleteBatch
from checkpointing.model.messages import StateFile, TriggerCheckpoint, Vertex
from checkpointing.spark.staging import StagedBatch, file_name
from checkpointing.spark.uploads import Upload, UploadFailed, Uploads, step_back
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.locations import parent
from checkpointing.storage.memory_files import MAX_STATE_SIZE, MemoryFiles, StateTooLarge
from checkpointing.storage.opening import files_for

log = logging.getLogger(__name__)

# Smaller files are private to a checkpoint, because the pool's bookkeeping costs more. Equal content is also likely
# only among small files. In the pool, one checkpoint could drop such a file just when another begins to use it.
LEAST_SHARED_BYTES = 4096


@dataclass(frozen=True)
class DurableSubtask:
    """A subtask whose files are all in checkpoint storage.

    `new_bytes` is the size of the files that this checkpoint added.

    `contents`: the files' bytes by location, in base64, if the job manager's memory is the storage.
    """

    vertex: Vertex
    subtask: int
    files: tuple[StateFile, ...]
    new_bytes: int
    contents: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class PoolLedger:
    """The pool files that a checkpoint added and has not acknowledged yet. They are removed if it is aborted.

    After the acknowledgement, a file belongs to the job manager. Only the job manager knows whether the checkpoint was
    completed.
    """

    def __init__(self) -> None:
        self._brought: dict[str, int] = {}

    def used(self, location: str, checkpoint_id: int, *, is_new: bool) -> None:
        """Note that a checkpoint uses a file. A file that another checkpoint also uses belongs to the pool."""
        if is_new:
            self._brought[location] = checkpoint_id
        elif self._brought.get(location) != checkpoint_id:
            self._brought.pop(location, None)

    def acknowledged(self, locations: Sequence[str]) -> None:
        for location in locations:
            self._brought.pop(location, None)

    def aborted(self, checkpoint_id: int) -> list[str]:
        """Return the files to remove."""
        gone = [location for location, owner in self._brought.items() if owner == checkpoint_id]
        self.acknowledged(gone)
        return gone


@dataclass(frozen=True)
class _StoredFile:
    """A stored file. `is_new`: this checkpoint added it."""

    file: StateFile
    location: str
    is_new: bool


class SnapshotWriter:
    """Stores staged files in one checkpoint's directory, many at a time, with `uploads` where that is faster.

    `is_over` returns whether the checkpoint was aborted. It is called while others work.
    """

    def __init__(
        self,
        trigger: TriggerCheckpoint,
        checksums: FileChecksums,
        pool: PoolLedger,
        uploads: Uploads | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._trigger = trigger
        self._uploads = uploads
        self._is_over = is_over
        self._checksums = checksums
        self._ledger = pool
        self._files = files_for(trigger.directory)
        keeps_pool = trigger.shared_directory is not None and not trigger.full
        self._pool = trigger.shared_directory if keeps_pool and not isinstance(self._files, MemoryFiles) else None
        self._pool_sizes: Mapping[str, int] = {}
        self._pool_names_are_durable = False
        self._claims: dict[str, Future[None]] = {}
        self._claiming = threading.Lock()

    def write(self, staged: StagedBatch) -> Generator[DurableSubtask, None, None]:
        """Yield every subtask of the query in the order of its plan, each once it is durable.

        Raise IncompleteBatch on an unknown file, OSError if storage fails. If closed early, it stops and leaves nothing
        running; the ledger has the files that it added.
        """
        grouped = self._by_subtask(staged)
        self._pool_sizes = self._files.sizes(self._pool) if self._pool is not None else {}
        brought = self._stored_by_executors(staged)
        with ThreadPoolExecutor(self._files.transfers, "transfer", step_back) as executor:
            futures = {
                key: [brought.get(file.path) or executor.submit(self._place, staged, file) for file in files]
                for key, files in grouped.items()
            }
            try:
                for vertex in staged.files.plan.vertices:
                    for subtask in range(vertex.parallelism):
                        placed = [future.result() for future in futures[vertex.id, subtask]]
                        yield self._durable(vertex, subtask, placed)
            finally:
                executor.shutdown(cancel_futures=True)
                self._record(_successful(future for each in futures.values() for future in each))

    def _by_subtask(self, staged: StagedBatch) -> dict[tuple[str, int], list[BatchFile]]:
        """Return the files of every subtask of the query, including subtasks without files."""
        plan = staged.files.plan
        grouped: dict[tuple[str, int], list[BatchFile]] = defaultdict(list)
        for file in staged.selected:
            vertex = plan.vertex(file.owner)
            if vertex is None or file.owner.subtask >= vertex.parallelism:
                raise IncompleteBatch(f"{file.path} belongs to no known operator of query {plan.query!r}")
            grouped[vertex.id, file.owner.subtask].append(file)
        if isinstance(self._files, MemoryFiles):
            largest = max((sum(file.size for file in files) for files in grouped.values()), default=0)
            if largest > MAX_STATE_SIZE:
                raise StateTooLarge(largest)
        return {(v.id, i): grouped[v.id, i] for v in plan.vertices for i in range(v.parallelism)}

    def _durable(self, vertex: Vertex, subtask: int, placed: Sequence[_StoredFile]) -> DurableSubtask:
        # Sync files found in the pool, too: the driver that added them may have died before they were durable.
        self._files.make_durable([*dict.fromkeys(each.location for each in placed), *self._changed_directories(placed)])
        contents = {}
        if isinstance(self._files, MemoryFiles):
            contents = {each.file.location: _base64(self._files.take(each.location)) for each in placed}
        files = tuple(each.file for each in placed)
        return DurableSubtask(vertex, subtask, files, sum(each.file.size for each in placed if each.is_new), contents)

    def _changed_directories(self, placed: Sequence[_StoredFile]) -> set[str]:
        """Return the directories with new names: those of new files, and the parents of new directories.

        Include the pool once if files were found there, because a driver may have died after it added them and before
        it synced them.
        """
        changed: set[str] = set()
        if not self._pool_names_are_durable and any(each.file.shared and not each.is_new for each in placed):
            self._pool_names_are_durable = True
            changed.add(str(self._pool))
        for each in placed:
            directory = parent(each.location)
            while each.is_new and directory not in changed:
                changed.add(directory)
                if each.file.shared or directory == self._trigger.directory:
                    break
                directory = parent(directory)
        return changed

    def _record(self, placed: Iterable[_StoredFile]) -> None:
        for each in placed:
            if each.file.shared:
                self._ledger.used(each.location, self._trigger.checkpoint_id, is_new=each.is_new)

    # --- by the executors ---

    def _stored_by_executors(self, staged: StagedBatch) -> Mapping[str, Future[_StoredFile]]:
        """Return the files that executors stored, by path. Return none if executors would be slower or failed.

        This process then stores the files itself.
        """
        if self._uploads is None or isinstance(self._files, LocalFiles | MemoryFiles):
            return {}
        files = {file.path: file for file in staged.selected if not self._is_in_pool(staged, file)}
        size = sum(file.size for file in files.values())
        if not files or size < self._uploads.least_bytes:
            return {}
        what = f"Checkpoint {self._trigger.checkpoint_id}: upload of query {staged.files.query}"
        try:
            found = self._uploads.bring([self._upload(staged, file) for file in files.values()], what, self._is_over)
        except (UploadFailed, OSError) as error:
            log.warning("%s: the driver does it, because the executors could not: %s", what, error)
            return {}
        workers = len({each.worker for each in found})
        log.info("%s: %d files, %d bytes, by %d of the executors' processes", what, len(found), size, workers)
        brought: dict[str, Future[_StoredFile]] = {}
        places: set[str] = set()
        for each in found:
            file, is_new = files[each.path], each.is_new and each.location not in places
            places.add(each.location)
            self._checksums.learn(staged.link_of(file), each.checksum)
            brought[each.path] = Future()
            brought[each.path].set_result(self._placed(file, each.checksum, each.location, is_new=is_new))
        return brought

    def _is_in_pool(self, staged: StagedBatch, file: BatchFile) -> bool:
        known = self._checksums.known(staged.link_of(file)) if self._is_shared(file) else None
        return known is not None and self._pool_sizes.get(known) == file.size

    def _upload(self, staged: StagedBatch, file: BatchFile) -> Upload:
        link, shared = str(staged.link_of(file)), self._is_shared(file)
        if not shared:
            return Upload(file.path, link, file.size, self._private(staged, file), by_content=False)
        there = frozenset(name for name, size in self._pool_sizes.items() if size == file.size)
        return Upload(file.path, link, file.size, str(self._pool), by_content=True, there=there)

    # --- on a transfer's thread ---

    def _place(self, staged: StagedBatch, file: BatchFile) -> _StoredFile:
        link = staged.link_of(file)
        checksum = self._checksums.of(link)
        if link.stat().st_size != file.size:
            raise OSError(errno.EIO, f"has {link.stat().st_size} bytes instead of {file.size}", str(link))
        if self._is_shared(file):
            location = f"{self._pool}/{checksum}"
            is_new = self._store_in_pool(link, location, checksum, file.size)
        else:
            location, is_new = self._private(staged, file), True
            self._files.put(link, location)
        return self._placed(file, checksum, location, is_new=is_new)

    def _is_shared(self, file: BatchFile) -> bool:
        return self._pool is not None and file.immutable and file.size >= LEAST_SHARED_BYTES

    def _private(self, staged: StagedBatch, file: BatchFile) -> str:
        return f"{self._trigger.directory}/{_safe(staged.files.query)}/{file_name(file.path)}"

    def _placed(self, file: BatchFile, checksum: str, location: str, *, is_new: bool) -> _StoredFile:
        relative = location.removeprefix(f"{self._base()}/")
        return _StoredFile(StateFile(file.path, relative, file.size, checksum, self._is_shared(file)), location, is_new)

    def _store_in_pool(self, link: Path, location: str, checksum: str, size: int) -> bool:
        """Store the file unless it exists.

        Return whether it was new or damaged: replacing a damaged file repairs old checkpoints.
        """
        with self._claiming:
            claimed = self._claims.get(location)
            mine = self._claims.setdefault(location, Future())
        if claimed is not None:  # the batch has the same content twice
            claimed.result()
            return False
        try:
            is_there = self._pool_sizes.get(checksum) == size and self._files.is_same(location, link, checksum)
            if not is_there:
                self._files.put(link, location)
        except BaseException as error:
            mine.set_exception(error)
            raise
        mine.set_result(None)
        return not is_there

    def _base(self) -> str:
        """Return the directory to which a file's location is relative."""
        directory = self._trigger.directory
        return directory if self._trigger.kind.is_savepoint else parent(directory)


def _successful(futures: Iterable[Future[_StoredFile]]) -> Iterator[_StoredFile]:
    return (future.result() for future in futures if not future.cancelled() and future.exception() is None)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _safe(query: str) -> str:
    """Return a query's name as a directory name. Other characters become `_`."""
    return re.sub(r"[^\w.-]", "_", query).lstrip(".") or "_"
