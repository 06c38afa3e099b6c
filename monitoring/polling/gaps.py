"""Find the checkpoint IDs that the engine dropped from its history between two polls. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from monitoring.engine.answers import Checkpoints


@dataclass(frozen=True)
class Ids:
    first: int
    last: int


def unseen(answer: Checkpoints, newest_seen: int | None, lost: Collection[int], *, replaced: bool) -> list[Ids]:
    """Return the IDs between the newest seen one and the oldest of the history, and the `lost` ones.

    Waymark never saw the end of the `lost` ones. If `newest_seen` is None, monitoring begins with this answer, and
    there is no gap before it. An ID that is missing *inside* the engine's history was never a checkpoint: a trigger
    that fails early uses up an ID. `replaced`: the newest seen checkpoint may be of an earlier job manager, so all IDs
    before the first of this one may be missing.
    """
    missing = [Ids(one, one) for one in lost]
    history = {entry.id for entry in answer.history}
    if history and newest_seen is not None and (replaced or rolled_over(answer)):
        missing += _between(newest_seen + 1, min(history) - 1, {entry.id for entry in answer.latest})
    return _merged(missing)


def rolled_over(answer: Checkpoints) -> bool:
    """Return whether the engine has had more checkpoints than it still lists."""
    return answer.counts.total > len(answer.history)


def _between(first: int, last: int, seen: Iterable[int]) -> list[Ids]:
    ranges = []
    for one in sorted(one for one in seen if first <= one <= last):
        if one > first:
            ranges.append(Ids(first, one - 1))
        first = one + 1
    return [*ranges, Ids(first, last)] if first <= last else ranges


def _merged(ranges: Iterable[Ids]) -> list[Ids]:
    merged: list[Ids] = []
    for ids in sorted(ranges, key=lambda ids: ids.first):
        if merged and ids.first <= merged[-1].last + 1:
            merged[-1] = Ids(merged[-1].first, max(ids.last, merged[-1].last))
        else:
            merged.append(ids)
    return merged
