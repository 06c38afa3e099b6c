"""Named handles under locks: what the stores keep, wherever it is kept (Flink's StateHandleStore)."""

from __future__ import annotations

from typing import Protocol

from checkpointing.ha.errors import NodeExists, NodeMissing


class StateHandleStore(Protocol):
    """Handles of at most 1 KB by name. Blocking.

    A handle is removed only when no other store instance holds a lock on it: what one job manager uses, another cannot
    delete. Locks end with the holder's session. A handle without a place for locks is *marked for deletion*
    and no longer exists.
    """

    @property
    def durable(self) -> bool:
        """Whether another job manager can find the handles after this one is gone."""
        ...

    def add_and_lock(self, name: str, handle: bytes) -> None:
        """Store a new handle, locked. NodeExists: there is one. PossibleInconsistentState: the outcome is not known."""
        ...

    def replace(self, name: str, handle: bytes) -> None:
        """Overwrite a handle that is locked here; errors as `add_and_lock`, NodeMissing when there is none."""
        ...

    def get_and_lock(self, name: str) -> bytes:
        """NodeMissing when there is none or it is marked for deletion; a failed read leaves no lock behind."""
        ...

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        """All handles, sorted by name; those marked for deletion are skipped."""
        ...

    def names(self) -> list[str]:
        """All names, sorted, including those marked for deletion."""
        ...

    def exists(self, name: str) -> bool: ...

    def release(self, name: str) -> None:
        """Give up the own lock; the handle stays."""
        ...

    def release_all(self) -> None: ...

    def release_and_try_remove(self, name: str) -> bool:
        """Give up the own lock and remove the handle. False: another one holds it, it stays. A missing one: True."""
        ...

    def clear_entries(self) -> None:
        """Remove everything, whoever holds it: the job is over for all."""
        ...


class InMemoryStateHandleStore:
    """Handles that live and end with this process, so nobody else can hold one."""

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
        """Nothing is locked."""

    def release_all(self) -> None:
        """Nothing is locked."""

    def release_and_try_remove(self, name: str) -> bool:
        self._handles.pop(name, None)
        return True

    def clear_entries(self) -> None:
        self._handles.clear()
