"""Named handles under locks, in memory or in ZooKeeper (Flink's StateHandleStore)."""

from __future__ import annotations

from typing import Protocol

from checkpointing.ha.errors import NodeExists, NodeMissing


class StateHandleStore(Protocol):
    """Stores handles of at most 1 KB by name. All methods block.

    A handle is removed only if no other store instance holds a lock on it, so one job manager cannot delete what
    another one uses. Locks end with the holder's session. A handle without a node for locks is *marked for deletion*
    and no longer exists.
    """

    @property
    def durable(self) -> bool:
        """Return whether another job manager can find the handles after this one has ended."""
        ...

    def add_and_lock(self, name: str, handle: bytes) -> None:
        """Store a new handle and lock it.

        Raise NodeExists if there is one, PossibleInconsistentState if the outcome is unknown.
        """
        ...

    def replace(self, name: str, handle: bytes) -> None:
        """Overwrite a handle that is locked here. Raise NodeMissing if there is none, or an error of `add_and_lock`."""
        ...

    def get_and_lock(self, name: str) -> bytes:
        """Lock and return a handle.

        Raise NodeMissing if it is missing or marked for deletion. A failed read leaves no lock.
        """
        ...

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        """Return all handles sorted by name, without those marked for deletion."""
        ...

    def names(self) -> list[str]:
        """Return all names, sorted, including those marked for deletion."""
        ...

    def exists(self, name: str) -> bool: ...

    def release(self, name: str) -> None:
        """Release this instance's lock. The handle stays."""
        ...

    def release_all(self) -> None: ...

    def release_and_try_remove(self, name: str) -> bool:
        """Release this instance's lock and remove the handle.

        Return False if another instance holds it, so that it stays.

        Return True if the handle is missing.
        """
        ...

    def clear_entries(self) -> None:
        """Remove everything, even with locks of others, because the job is over for all job managers."""
        ...


class InMemoryStateHandleStore:
    """Handles in memory, which end with this process, so no other instance can hold one."""

    durable = False

    def __init__(self) -> None:
        self._handles: dict[str, bytes] = {}

    def add_and_lock(self, name: str, handle: bytes) -> None:
        if name in self._handles:
            raise NodeExists(name)
        self._handles[name] = handle

    def replace(self, name: str, handle: bytes) -> None:
        self.get_and_lock(name)
        self._handles[name] = handle

    def get_and_lock(self, name: str) -> bytes:
        if name not in self._handles:
            raise NodeMissing(name)
        return self._handles[name]

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        return sorted(self._handles.items())

    def names(self) -> list[str]:
        return sorted(self._handles)

    def exists(self, name: str) -> bool:
        return name in self._handles

    def release(self, name: str) -> None:
        """Do nothing, because nothing is locked."""

    def release_all(self) -> None:
        """Do nothing, because nothing is locked."""

    def release_and_try_remove(self, name: str) -> bool:
        self._handles.pop(name, None)
        return True

    def clear_entries(self) -> None:
        self._handles.clear()
