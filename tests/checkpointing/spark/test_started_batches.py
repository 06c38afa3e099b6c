"""The CPU time of a foreachBatch function, as the kernel measures it for the function's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.started_batches import StartedBatches


class Function:
    """A function on a separate thread that works while `works` is set."""

    def __init__(self, begun: StartedBatches) -> None:
        self.works, self.is_idle, self.ends = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, args=(begun,))
        self._thread.start()
        assert self.is_idle.wait(30)

    def _run(self, begun: StartedBatches) -> None:
        begun.note(None, 3)
        while not self.ends:
            self.works.clear()
            self.is_idle.set()
            self.works.wait()
            sum(number * number for number in range(0 if self.ends else 2_000_000))

    def work(self) -> None:
        self.is_idle.clear()
        self.works.set()
        assert self.is_idle.wait(60)

    def end(self) -> None:
        self.ends = True
        self.works.set()
        self._thread.join(60)


@pytest.fixture
def begun(tmp_path: Path) -> StartedBatches:
    return StartedBatches([tmp_path])


@pytest.fixture
def function(begun: StartedBatches) -> Iterator[Function]:
    made = Function(begun)
    yield made
    made.end()


def test_the_work_of_a_function_is_progress_and_its_waiting_is_not(
    begun: StartedBatches, function: Function, tmp_path: Path
) -> None:
    before = begun.cpu_ticks(tmp_path)
    assert begun.cpu_ticks(tmp_path) == before
    function.work()
    assert begun.cpu_ticks(tmp_path) > before


def test_a_function_that_was_never_called_or_whose_thread_has_ended_has_done_nothing(
    begun: StartedBatches, function: Function, tmp_path: Path
) -> None:
    assert begun.cpu_ticks(tmp_path / "other") == 0
    function.end()
    assert begun.cpu_ticks(tmp_path) == 0


def test_error_of_a_batch_function_keeps_its_class(begun: StartedBatches, tmp_path: Path) -> None:
    begun.note_error(KeyError("of a function that was never called"))
    assert begun.error(tmp_path) is None
    begun.note(None, 3)
    raised = KeyError("word")
    begun.note_error(raised)
    assert begun.error(tmp_path) is raised
