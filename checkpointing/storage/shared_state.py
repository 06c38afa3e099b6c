"""Reference counts of the files in a job's shared pool.

Flink remembers the last checkpoint that used a file; we count references, because checkpoints here may be discarded in
any order (an aborted one before an older pending one).
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpointing.messages import StateFile


class ReferenceCountingRegistry:
    """The SharedStateRegistry of one job. Kept in memory: rebuilt from the retained checkpoints after a fail-over."""

    def __init__(self) -> None:
        self._users: dict[str, set[int]] = {}
        self._files: dict[str, StateFile] = {}
        self._used_by: dict[int, set[str]] = {}

    def register(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count that `checkpoint_id` needs the shared ones of `files`; once per file, however often it is said."""
        for file in files:
            if not file.shared:
                continue
            users = self._users.get(file.location)
            if users is None:
                self._users[file.location] = {checkpoint_id}
                self._files[file.location] = file
            else:
                users.add(checkpoint_id)
            self._used_by.setdefault(checkpoint_id, set()).add(file.location)

    def release(self, checkpoint_id: int) -> Sequence[StateFile]:
        """Forget `checkpoint_id`; the files that no other checkpoint needs. Nothing when it is not known."""
        unreferenced = []
        for location in sorted(self._used_by.pop(checkpoint_id, ())):
            users = self._users[location]
            users.discard(checkpoint_id)
            if not users:
                del self._users[location]
                unreferenced.append(self._files.pop(location))
        return unreferenced

    def users_of(self, location: str) -> frozenset[int]:
        return frozenset(self._users.get(location, ()))
