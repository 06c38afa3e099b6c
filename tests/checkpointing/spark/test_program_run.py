"""A program on a separate thread. The queries that it starts before it waits or ends are the job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.mistakes import is_mistake
from checkpointing.spark.program import Program, ProgramError, call_program
from checkpointing.spark.program_run import ProgramRun
from tests.waiting import eventually


@dataclass(eq=False)
class Started:
    name: str
    writer: Any = field(default_factory=object)
    running: Any = None
    has_ended: bool = False


def run_of(program: Callable[[ProgramRun], object]) -> ProgramRun:
    run = ProgramRun(lambda: program(run))
    return run


def test_a_program_that_ends_returns_its_result_and_its_queries() -> None:
    def program(run: ProgramRun) -> str:
        run.add(Started("a"))
        run.add(Started("b"))
        return "returned"

    run = run_of(program)
    assert run.until_settled() == "returned"
    assert [query.name for query in run.queries] == ["a", "b"]
    eventually("its end", lambda: run.has_ended)


def test_exception_of_the_program_is_raised() -> None:
    def program(run: ProgramRun) -> None:
        raise KeyError("input")

    with pytest.raises(KeyError, match="input"):
        run_of(program).until_settled()


def test_a_waiting_program_continues_when_its_query_has_ended() -> None:
    query, after = Started("a"), threading.Event()

    def program(run: ProgramRun) -> None:
        run.add(query)
        run.settle()
        run.wait_for(lambda: query.has_ended)
        after.set()

    run = run_of(program)
    assert run.until_settled() is None
    assert not run.has_ended
    run.begin([Started("a")])  # type: ignore[list-item]
    assert not after.is_set()
    run.note_ended("a")
    assert after.wait(60)
    eventually("its end", lambda: run.has_ended)


def test_a_query_started_after_the_first_wait_is_refused_and_reported_to_the_driver() -> None:
    def program(run: ProgramRun) -> None:
        run.add(Started("a"))
        run.wait_until_begun()
        run.add(Started("b"))

    run = run_of(program)
    run.until_settled()
    run.begin([Started("a")])  # type: ignore[list-item]
    eventually("its end", lambda: run.has_ended)
    assert isinstance(run.error, ProgramError)
    assert "Start all queries before" in str(run.error)


def test_a_writer_is_started_once() -> None:
    writer = object()

    def program(run: ProgramRun) -> None:
        run.add(Started("a", writer))
        run.add(Started("b", writer))

    with pytest.raises(ProgramError, match="same writer twice"):
        run_of(program).until_settled()


def test_exception_on_the_programs_thread_is_a_program_error() -> None:
    def function(spark: object, arguments: dict[str, str]) -> None:
        raise KeyError("input")

    program = Program(function, Path("job.py"), "job:function")
    with pytest.raises(KeyError) as raised:
        ProgramRun(lambda: call_program(program, None, {})).until_settled()
    assert is_mistake(raised.value, call_program)
