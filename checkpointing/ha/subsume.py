"""Which completed checkpoints a new one replaces (Flink's CheckpointSubsumeHelper)."""

from __future__ import annotations

from collections.abc import Sequence

from checkpointing.model.checkpoint import CompletedCheckpoint


def subsumed(checkpoints: Sequence[CompletedCheckpoint], num_retained: int) -> list[CompletedCheckpoint]:
    """Those of `checkpoints` (oldest first) to drop so that at most `num_retained` stay, where the rules allow it.

    The newest always stays. A savepoint may be dropped from the list (its files are the user's and stay). The newest
    checkpoint that is no savepoint stays, unless the newest of all is a synchronous savepoint: the job ends with it.
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
