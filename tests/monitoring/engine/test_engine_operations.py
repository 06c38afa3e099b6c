"""Every asynchronous operation has one type of result, and can be polled until it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from monitoring.engine.answers import CheckpointStats
from monitoring.engine.errors import Malformed, Unreachable
from monitoring.engine.fields import Fields
from monitoring.engine.operations import (
    Done,
    Failed,
    Forgotten,
    InProgress,
    Operation,
    checkpoint_since,
    follow,
    parse,
)

TRACE = "java.util.concurrent.CompletionException: a.B: outer\n\tat x\nCaused by: c.D: no room left\n\tat y"
CAUSE = {"class": "java.util.concurrent.CompletionException", "stack-trace": TRACE}


def answer(status: str, operation: object) -> Fields:
    return Fields({"status": {"id": status}, "operation": operation}, "/operation")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (answer("IN_PROGRESS", None), InProgress()),
        (answer("COMPLETED", {"checkpointId": 7}), Done(7)),
        (answer("COMPLETED", {"failure-cause": CAUSE}), Failed("no room left")),
        (answer("COMPLETED", {"failureCause": CAUSE}), Failed("no room left")),
    ],
)
def test_the_status_of_an_operation_is_parsed(fields: Fields, expected: Operation[int]) -> None:
    assert parse(fields, lambda operation: operation.whole("checkpointId")) == expected


def test_completed_without_a_result_is_none() -> None:
    with pytest.raises(Malformed, match="COMPLETED without a result"):
        parse(answer("COMPLETED", None), lambda operation: None)


def results_in(*answers: Operation[int] | Exception) -> Callable[[], Awaitable[Operation[int]]]:
    """Return a function that gives the answers in turn, and repeats the last one."""
    left = list(answers)

    async def ask() -> Operation[int]:
        given = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(given, Exception):
            raise given
        return given

    return ask


@pytest.mark.parametrize("end", [Done(7), Failed("why"), Forgotten()])
async def test_an_operation_is_followed_to_its_end_over_an_outage(end: Operation[int]) -> None:
    ask = results_in(InProgress(), Unreachable("gone for a while"), InProgress(), end)
    assert await follow(ask, limit_s=5, every_s=0) == end


async def test_an_operation_is_still_in_progress_at_the_deadline() -> None:
    assert await follow(results_in(InProgress()), limit_s=0.01, every_s=0.005) == InProgress()


async def test_only_silence_is_an_error() -> None:
    with pytest.raises(Unreachable, match="gone"):
        await follow(results_in(Unreachable("gone")), limit_s=0.01, every_s=0.005)


ASKED = datetime(2026, 11, 21, 12, tzinfo=UTC)


def entry(number: int, status: str, after_s: float, **more: object) -> CheckpointStats:
    """Return the statistics of a checkpoint that was triggered `after_s` after the request."""
    triggered = int((ASKED + timedelta(seconds=after_s)).timestamp() * 1000)
    counts = {"num_subtasks": 2, "num_acknowledged_subtasks": 2}
    text = {"id": number, "status": status, "trigger_timestamp": triggered, "is_savepoint": False, **counts, **more}
    return CheckpointStats.parse(Fields(text, "/checkpoints"))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], Forgotten()),
        ([entry(3, "COMPLETED", -6)], Forgotten()),
        ([entry(4, "COMPLETED", 1, is_savepoint=True)], Forgotten()),
        ([entry(6, "COMPLETED", 9), entry(5, "COMPLETED", -1)], Done(5)),
        ([entry(6, "IN_PROGRESS", 9), entry(5, "FAILED", 1)], InProgress()),
        ([entry(6, "FAILED", 9, failure_message="Checkpoint expired.")], Failed("Checkpoint expired.")),
        ([entry(6, "FAILED", 9)], Failed("Checkpoint 6 failed.")),
    ],
)
def test_a_checkpoint_whose_request_was_forgotten_is_found_in_the_history(
    history: list[CheckpointStats], expected: Operation[int]
) -> None:
    assert checkpoint_since(ASKED, history) == expected
