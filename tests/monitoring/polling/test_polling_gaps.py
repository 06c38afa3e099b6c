"""Which checkpoint IDs left the engine's history before a poll read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from monitoring.engine.answers import Checkpoints, CheckpointStats, Counts, TaskStats
from monitoring.polling.gaps import Ids, unseen

NOTHING = TaskStats(None, None, None, None, None, None, 0, 0)


def entry(number: int) -> CheckpointStats:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    return CheckpointStats(number, "COMPLETED", False, "", "CHECKPOINT", at, NOTHING, "", False, None, "", {})


def answer(history: list[int], total: int, latest: list[int] | None = None) -> Checkpoints:
    return Checkpoints(
        Counts(0, total, 0, total, 0), {}, tuple(map(entry, history)), tuple(map(entry, latest or [])), None
    )


@pytest.mark.parametrize(
    ("history", "total", "latest", "newest_seen", "lost", "replaced", "expected"),
    [
        ([12, 11, 10], 12, [], 9, [], False, []),
        ([12, 11, 10], 12, [], 5, [], False, [Ids(6, 9)]),
        ([12, 11, 10], 12, [7], 5, [], False, [Ids(6, 6), Ids(8, 9)]),
        ([12, 11, 10], 12, [], None, [], False, []),
        ([12, 11, 10], 3, [], 5, [], False, []),  # no entry left the history: these IDs were never used
        ([12, 11, 10], 3, [], 5, [], True, [Ids(6, 9)]),  # a new job manager lost its history
        ([12, 11, 10], 12, [], 5, [5], False, [Ids(5, 9)]),
        ([12, 11, 10], 12, [], 9, [4], False, [Ids(4, 4)]),
        ([], 0, [], 5, [], True, []),
        ([10**12], 10**12, [], 5, [], False, [Ids(6, 10**12 - 1)]),
    ],
)
def test_gaps(history, total, latest, newest_seen, lost, replaced, expected):
    assert unseen(answer(history, total, latest), newest_seen, lost, replaced=replaced) == expected
