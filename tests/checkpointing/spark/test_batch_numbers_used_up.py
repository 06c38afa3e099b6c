"""A driver ends when its batch numbers are almost used up, so that the next attempt gets new numbers."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointing.checkpoint_location.local_recovery import LocalState
from checkpointing.model.messages import BatchNumbersExtended, DriverState, Registered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.nightly
def test_a_driver_ends_when_its_batch_numbers_are_nearly_used_up(
    job_manager: Any, drivers: Any, words: Any, eventually: Any
) -> None:
    """The driver receives the end of its range twice: when it registers and when the range is extended."""

    def feed(number: int) -> None:
        words.write(f"f{number}", [f"w{number}"])
        eventually(f"batch {number}", lambda: f"w{number}" in words.counts())

    job_manager.answer = Registered(job_manager.session_id, (1,), 200, 20_000, batch_numbers_end=101)
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments)
    job_manager.await_state(1, DriverState.RUNNING)
    job_manager.send(BatchNumbersExtended(job_manager.session_id, 103))
    feed(0)
    job_manager.complete(1)  # now the driver has handled the message
    feed(1)
    feed(2)
    assert job_manager.state(1) is DriverState.RUNNING
    words.write("f3", ["w3"])
    failure = job_manager.await_state(1, DriverState.FAILED).exception
    assert (failure.name, failure.recoverable, failure.is_mistake) == ("BatchNumbersUsedUp", True, False)
    assert "Query 'words' has reached batch 3, and this attempt may use the numbers below 103 only" in failure.message
    assert driver.process.wait(60) == 1
    state = LocalState.read(driver.work)
    state.check()
    assert (state.batches, bool(state.in_flight)) == ({"words": 3}, False), "nothing is left to run with its old number"
