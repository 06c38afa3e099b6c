"""The retained checkpoints of one job (Flink's DefaultCompletedCheckpointStore, StandaloneCompletedCheckpointStore)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.errors import CheckpointsUnreadable, HighAvailabilityError
from checkpointing.ha.state_handles import StateHandleStore
from checkpointing.model.checkpoint import CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind
from checkpointing.model.status import JobStatus
from checkpointing.storage.errors import SnapshotUnusable

HANDLE_VERSION = 1
HANDLE_NAME = re.compile(r"\d{19}")

LoadCheckpoint = Callable[[str], CompletedCheckpoint]
"""Reads the `_metadata` in a checkpoint's directory.

Raises SnapshotUnusable or ValueError if it is certainly damaged or missing, another OSError if it cannot be read now.
"""

log = logging.getLogger(__name__)


class StoreShutDown(RuntimeError):
    """The store was used after its shutdown."""


@dataclass(frozen=True)
class CheckpointHandle:
    """The stored handle of a checkpoint: its location, never the state itself.

    `claimed`: the job claimed the checkpoint, and this is its retention from then on. Its metadata is still the
    original.
    """

    checkpoint_id: int
    location: str
    kind: CheckpointKind
    claimed: RetentionPolicy | None = None

    @classmethod
    def of(cls, checkpoint: CompletedCheckpoint) -> CheckpointHandle:
        properties = checkpoint.properties
        claimed = properties.retention if properties.claimed else None
        return cls(checkpoint.checkpoint_id, checkpoint.location, properties.kind, claimed)

    def applied_to(self, checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
        """Return `checkpoint`, read from its metadata, with the job's own properties if the job claimed it."""
        if self.claimed is None:
            return checkpoint
        return replace(checkpoint, properties=checkpoint.properties.claimed_by_job_with(self.claimed))

    def encode(self) -> bytes:
        fields = {
            "version": HANDLE_VERSION,
            "checkpoint_id": self.checkpoint_id,
            "location": self.location,
            "kind": self.kind.value,
        } | ({} if self.claimed is None else {"claimed": self.claimed.value})
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> CheckpointHandle:
        """Decode a handle. Raise ValueError on anything that `encode` did not write."""
        try:
            fields = json.loads(data)
            if fields["version"] != HANDLE_VERSION:
                raise ValueError(f"version {fields['version']!r} of a checkpoint handle is not supported")
            claimed = RetentionPolicy(fields["claimed"]) if "claimed" in fields else None
            return cls(int(fields["checkpoint_id"]), str(fields["location"]), CheckpointKind(fields["kind"]), claimed)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a checkpoint handle: {data[:80]!r}") from error


@dataclass(frozen=True)
class UnreadableCheckpoint:
    """A handle whose checkpoint is damaged or missing. It is kept, so that a person can inspect it."""

    name: str
    reason: str


class HandleCompletedCheckpointStore:
    """The store over any StateHandleStore. All methods block; one thread uses it at a time.

    Recovery differs from Flink's on purpose: in Flink one unreadable checkpoint makes it fail. Here a checkpoint that
    is certainly damaged or missing is reported in `unreadable`, and the others are used. A checkpoint that cannot be
    read now makes the recovery fail, and it may be repeated: an older state must not be preferred because the storage
    is unavailable (decision 123).
    """

    def __init__(self, handles: StateHandleStore, num_retained: int, load_checkpoint: LoadCheckpoint) -> None:
        if num_retained < 1:
            raise ValueError(f"at least one checkpoint must be retained, not {num_retained}")
        self._handles = handles
        self._num_retained = num_retained
        self._load = load_checkpoint
        self._checkpoints: list[CompletedCheckpoint] = []
        self._unreadable: tuple[UnreadableCheckpoint, ...] = ()
        self._shut_down = False

    @property
    def checkpoints(self) -> Sequence[CompletedCheckpoint]:
        return tuple(self._checkpoints)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def outlives_job_manager(self) -> bool:
        """Return whether the next job manager finds the stored checkpoints."""
        return self._handles.durable

    @property
    def latest_id(self) -> int:
        """Return the newest ID, or 0 if the store is empty."""
        return self._checkpoints[-1].checkpoint_id if self._checkpoints else 0

    @property
    def unreadable(self) -> Sequence[UnreadableCheckpoint]:
        """Return the checkpoints that the last recovery left out."""
        return self._unreadable

    def add_checkpoint(self, checkpoint: CompletedCheckpoint) -> Sequence[CompletedCheckpoint]:
        """Store `checkpoint`. Return the subsumed checkpoints, oldest first, savepoints included.

        If storing fails, nothing has changed here. After PossibleInconsistentState the checkpoint's files must stay. A
        subsumed checkpoint that cannot be removed, or that another job manager uses, is not returned, so its files
        stay.
        """
        self._check_open()
        self._store(checkpoint)
        self._checkpoints.append(checkpoint)
        dropped = subsumed(self._checkpoints, self._num_retained)
        self._checkpoints = [kept for kept in self._checkpoints if kept not in dropped]
        return [old for old in dropped if self._removed(old)]

    def _store(self, checkpoint: CompletedCheckpoint) -> None:
        """Store the handle. Turn an error with an unknown outcome into PossibleInconsistentState."""
        handle = CheckpointHandle.of(checkpoint)
        try:
            self._handles.add_and_lock(handle_name(checkpoint.checkpoint_id), handle.encode())
        except (HighAvailabilityError, PossibleInconsistentState, ValueError):
            raise
        except Exception as error:
            raise PossibleInconsistentState(
                f"checkpoint {checkpoint.checkpoint_id} may or may not have been stored: {error}"
            ) from error

    def withdraw(self, checkpoint_id: int) -> bool:
        """Remove a handle that may have been stored (PossibleInconsistentState).

        Return False if it may still be there.
        """
        self._check_open()
        if any(checkpoint.checkpoint_id == checkpoint_id for checkpoint in self._checkpoints):
            return False
        try:
            return self._handles.release_and_try_remove(handle_name(checkpoint_id))
        except HighAvailabilityError as error:
            log.warning("whether checkpoint %d is stored is still not known: %s", checkpoint_id, error)
            return False

    def recover(self) -> None:
        """Read what an earlier job manager stored. Nothing is subsumed here; the next `add_checkpoint` does that.

        Raise CheckpointsUnreadable if there are handles and every checkpoint is damaged or missing. Raise OSError if a
        checkpoint cannot be read now.
        """
        self._check_open()
        found, unreadable = self._read_all()
        for entry in unreadable:
            log.error("checkpoint handle %s cannot be read: %s", entry.name, entry.reason)
        if unreadable and not found:
            reasons = "; ".join(f"{int(entry.name)}: {entry.reason}" for entry in unreadable)
            raise CheckpointsUnreadable(f"none of {len(unreadable)} stored checkpoints can be read: {reasons}")
        self._checkpoints, self._unreadable = found, tuple(unreadable)

    def shutdown(self, status: JobStatus) -> Sequence[CompletedCheckpoint]:
        """Close the store.

        Return the checkpoints that no longer belong to it, to be discarded according to their properties.

        With a globally terminal status, or if nothing outlives this process, these are all checkpoints without
        another user.
        Otherwise everything stays for the next job manager, and only this one's locks are released.
        """
        if self._shut_down:
            return ()
        self._shut_down = True
        mine, self._checkpoints = self._checkpoints, []
        if status.globally_terminal or not self._handles.durable:
            removed = [checkpoint for checkpoint in mine if self._removed(checkpoint)]
            self._clear()
            return removed
        self._release()
        return ()

    def _read_all(self) -> tuple[list[CompletedCheckpoint], list[UnreadableCheckpoint]]:
        found: list[CompletedCheckpoint] = []
        unreadable: list[UnreadableCheckpoint] = []
        for name, data in self._handles.get_all_and_lock():
            try:
                handle = CheckpointHandle.decode(data)
                found.append(handle.applied_to(self._load(handle.location)))
            except (SnapshotUnusable, ValueError) as error:
                unreadable.append(UnreadableCheckpoint(name, f"{type(error).__name__}: {error}"))
        return found, unreadable

    def _removed(self, checkpoint: CompletedCheckpoint) -> bool:
        try:
            return self._handles.release_and_try_remove(handle_name(checkpoint.checkpoint_id))
        except Exception:  # such an error must not make the newer checkpoint fail, whose handle is stored
            log.exception("the handle of checkpoint %d could not be removed; its files stay", checkpoint.checkpoint_id)
            return False

    def _clear(self) -> None:
        # The caller needs the list of checkpoints to discard. HighAvailabilityServices.clean_up removes the rest.
        try:
            self._handles.clear_entries()
        except HighAvailabilityError:
            log.exception("checkpoint handles could not be cleared")

    def _release(self) -> None:
        # Leadership is mostly lost with the connection. Then the locks end with the session.
        try:
            self._handles.release_all()
        except HighAvailabilityError as error:
            log.warning("checkpoint handles stay locked until the session ends: %s", error)

    def _check_open(self) -> None:
        if self._shut_down:
            raise StoreShutDown("the checkpoint store was shut down")


def handle_name(checkpoint_id: int) -> str:
    """Return the ID with 19 digits, so that names sort as numbers."""
    return f"{checkpoint_id:019d}"


def subsumed(checkpoints: Sequence[CompletedCheckpoint], num_retained: int) -> list[CompletedCheckpoint]:
    """Return the checkpoints (oldest first) to drop so that at most `num_retained` stay, if the rules allow it.

    The newest always stays. A savepoint may be dropped from the list (its files belong to the user and stay). The
    newest checkpoint that is not a savepoint stays, unless the newest of all is a synchronous savepoint, which ends the
    job.
    """
    if not checkpoints:
        return []
    newest = checkpoints[-1]
    newest_regular = next((c for c in reversed(checkpoints) if not c.properties.is_savepoint), None)
    dropped: list[CompletedCheckpoint] = []
    for candidate in checkpoints:
        if len(checkpoints) - len(dropped) <= num_retained:
            break
        replaceable = candidate.properties.is_savepoint or newest.properties.is_synchronous
        if candidate is not newest and (replaceable or candidate is not newest_regular):
            dropped.append(candidate)
    return dropped
