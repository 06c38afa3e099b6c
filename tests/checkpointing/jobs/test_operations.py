from __future__ import annotations

import asyncio
from typing import Any

import pytest

from checkpointing.clock import ManualClock
from checkpointing.jobs.operations import InProgress, OperationFailed, Operations, Succeeded, UnknownOperation


async def test_a_repeated_trigger_begins_nothing() -> None:
    operations, begun = Operations(ManualClock()), []

    async def begin() -> dict[str, Any]:
        begun.append(1)
        return {}

    operations.start(("a",), begin)
    operations.start(("a",), begin)
    assert operations.outcome(("a",)) == InProgress()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert begun == [1]
    assert operations.outcome(("a",)) == Succeeded({})


async def test_a_failure_is_kept_as_the_outcome() -> None:
    operations = Operations(ManualClock())

    async def begin() -> dict[str, Any]:
        raise ValueError("no")

    operations.start(("a",), begin)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    outcome = operations.outcome(("a",))
    assert isinstance(outcome, OperationFailed)
    assert str(outcome.error) == "no"


async def test_results_are_removed_after_five_minutes_but_running_operations_are_not() -> None:
    clock = ManualClock()
    operations, release = Operations(clock), asyncio.Event()

    async def slow() -> dict[str, Any]:
        await release.wait()
        return {}

    operations.start(("slow",), slow)
    clock.advance(3600)
    assert operations.outcome(("slow",)) == InProgress()
    release.set()
    for _ in range(3):
        await asyncio.sleep(0)
    clock.advance(299)
    assert operations.outcome(("slow",)) == Succeeded({})
    clock.advance(1)

    with pytest.raises(UnknownOperation):
        operations.outcome(("slow",))
