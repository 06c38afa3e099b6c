"""Reference counts of the files in a job's shared pool.

Flink remembers the last checkpoint that used a file; we count references, because checkpoints here may be discarded in
any order (an aborted one before an older pending one).
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpointing.model.messages import StateFile


class ReferenceCountingRegistry:
    """Flink's SharedStateRegistry of one job. It is rebuilt from the retained checkpoints after a fail-over.

    Every known checkpoint has a bit of its own, and a file's users are the bits set: a number, small as long as few
    checkpoints are known, so that a file costs an entry in one table and nothing else in memory. An acknowledgement
    only notes its files; they are looked up when a checkpoint is let go, all in a row.
    """

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._used_by: dict[int, list[StateFile]] = {}
        self._bits: dict[int, int] = {}
        self._noted: dict[int, list[StateFile]] = {}

    def register(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count that `checkpoint_id` needs the shared ones of `files`; once per file, however often it is said."""
        noted = self._noted.get(checkpoint_id)
        if noted is None:
            noted = self._noted[checkpoint_id] = []
        for file in files:
            if file.shared:
                noted.append(file)

    def release(self, checkpoint_id: int) -> Sequence[StateFile]:
        """Forget `checkpoint_id`; the files that no other checkpoint needs. Nothing when it is not known."""
        self._count_noted()
        bit = self._bits.pop(checkpoint_id, 0)
        unreferenced = []
        for file in self._used_by.pop(checkpoint_id, ()):
            users = self._users[file.location] ^ bit
            if users:
                self._users[file.location] = users
            else:
                del self._users[file.location]
                unreferenced.append(file)
        return unreferenced

    def users_of(self, location: str) -> frozenset[int]:
        self._count_noted()
        users = self._users.get(location, 0)
        return frozenset(checkpoint_id for checkpoint_id, bit in self._bits.items() if users & bit)

    def _count_noted(self) -> None:
        noted, self._noted = self._noted, {}
        for checkpoint_id, files in noted.items():
            bit = self._bits.get(checkpoint_id) or self._new_bit(checkpoint_id)
            used = self._used_by[checkpoint_id]
            for file in files:
                users = self._users.get(file.location, 0)
                if not users & bit:
                    self._users[file.location] = users | bit
                    used.append(file)

    def _new_bit(self, checkpoint_id: int) -> int:
        taken = sum(self._bits.values())
        bit = (taken + 1) & ~taken  # the lowest that is free
        self._bits[checkpoint_id] = bit
        self._used_by[checkpoint_id] = []
        return bit
