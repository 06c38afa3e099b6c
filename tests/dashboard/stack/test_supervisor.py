from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.stack.output import Output
from dashboard.stack.parts import ExternalPart, Part, Program
from dashboard.stack.process import Command, wait_until
from dashboard.stack.record import StackRecord, start_time
from dashboard.stack.supervisor import PartFailed, Supervisor

# The start of each program. Its file with a process ID is complete when it appears.
_HEAD = """
import os, signal, sys, time
name, directory = sys.argv[1:]
def write_pid(name, pid):
    path = f"{directory}/{name}.pid"
    with open(f"{path}.new", "w") as file: file.write(str(pid))
    os.rename(f"{path}.new", path)
"""
# A program that writes to the journal when it starts and when it receives the stop signal.
_SERVER = """
def note(what):
    with open(f"{directory}/journal", "a") as file: file.write(f"{name} {what}\\n")
def stop(*_):
    note("stopped"); sys.exit()
signal.signal(signal.SIGTERM, stop)
note("started")
print("hello from", name, flush=True)
write_pid(name, os.getpid())
while True: signal.pause()
"""


class Stack:
    """A supervisor with small programs as parts, the journal of the programs, and the supervisor's output."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said = io.StringIO()
        self.record = StackRecord(directory / "run")

    def server(
        self,
        name: str,
        *after: str,
        source: str = _SERVER,
        ready: Callable[[], bool] | None = None,
        grace_s: float = 10,
    ) -> Part:
        pid = self.directory / f"{name}.pid"
        command = Command((sys.executable, "-S", "-c", _HEAD + source, name, str(self.directory)), stop_grace_s=grace_s)
        program = Program(name, f"at {name}", command, ready or pid.exists, lambda: pid.unlink(missing_ok=True))
        return Part(program, after=after)

    def step(self, name: str, source: str, *after: str) -> Part:
        command = Command((sys.executable, "-S", "-c", source, name, str(self.directory)))
        return Part(Program(name, "", command, lambda: True), after=after, step=True)

    def run(self, *parts: Part, on_up: Callable[[], None], stop_order: tuple[str, ...] = ()) -> None:
        with self.record.acquire_lock(), contextlib.closing(Output(self.directory / "log", self.said)) as output:
            Supervisor(
                parts,
                external=[ExternalPart("mail", "smtp://elsewhere", "EMAIL_URL")],
                stop_order=stop_order,
                record=self.record,
                output=output,
                on_up=on_up,
            ).run()

    def journal(self) -> list[str]:
        return (self.directory / "journal").read_text().splitlines()

    def pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text())


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path)


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_parts_start_after_what_they_need_and_stop_in_the_given_order(stack: Stack) -> None:
    setup = stack.step("setup", "open(__import__('sys').argv[2] + '/journal', 'a').write('setup ran\\n')", "db")
    parts = (stack.server("db"), setup, stack.server("web", "setup"))
    stack.run(*parts, on_up=ask_to_stop, stop_order=("web", "db"))
    assert stack.journal() == ["db started", "setup ran", "web started", "web stopped", "db stopped"]


def test_output_of_a_part_is_prefixed_and_stored(stack: Stack) -> None:
    stack.run(stack.server("db"), on_up=ask_to_stop)
    assert "db          │ hello from db\n" in stack.said.getvalue()
    assert (stack.directory / "log" / "db.log").read_text() == "hello from db\n"


def test_failed_part_is_restarted_and_logged(stack: Stack) -> None:
    killed: list[int] = []

    def restarted() -> bool:
        if not (stack.directory / "db.pid").exists():
            return False
        if killed and stack.pid("db") != killed[0]:
            ask_to_stop()
        return True

    def kill() -> None:
        killed.append(stack.pid("db"))
        os.kill(killed[0], signal.SIGKILL)

    stack.run(stack.server("db", ready=restarted), on_up=kill)
    assert stack.journal() == ["db started", "db started", "db stopped"]
    assert "db: was ended by SIGKILL; starting it again in 1 s" in stack.said.getvalue()


def test_starting_part_is_probed_ten_times_a_second(stack: Stack) -> None:
    asked: list[float] = []

    def ready() -> bool:
        asked.append(time.monotonic())
        return len(asked) == 8

    chatty = "while True: print('not yet', flush=True); time.sleep(0.002)"
    stack.run(stack.server("db", source=chatty, ready=ready), on_up=ask_to_stop)
    assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= 0.09


def test_part_that_never_starts_stops_the_stack_with_its_last_output(stack: Stack) -> None:
    broken = stack.server("web", "db", source="raise SystemExit('no such module')", ready=lambda: False)
    with pytest.raises(PartFailed, match=r"web ended with exit code 1(.|\n)*no such module"):
        stack.run(stack.server("db"), broken, on_up=ask_to_stop)
    assert stack.journal() == ["db started", "db stopped"]


def test_failed_step_stops_the_stack(stack: Stack) -> None:
    with pytest.raises(PartFailed, match="migration is broken"):
        stack.run(stack.step("setup", "raise SystemExit('migration is broken')"), on_up=ask_to_stop)


def test_a_part_that_does_not_stop_is_killed_with_its_children(stack: Stack) -> None:
    stubborn = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setsid()  # as a job's driver is: not in the part's process group
    while True: time.sleep(60)
write_pid("child", child)
write_pid(name, os.getpid())
while True: time.sleep(60)
"""
    stack.run(stack.server("db", source=stubborn, grace_s=0.3), on_up=ask_to_stop)
    assert "db: does not stop on SIGTERM" in stack.said.getvalue()
    wait_until(lambda: start_time(stack.pid("child")) is None, limit_s=10, what="the end of the child")


def test_record_lists_running_parts_and_marks_them_down_afterwards(stack: Stack) -> None:
    seen = {}

    def look() -> None:
        seen.update({part.name: part for part in stack.record.read()})
        ask_to_stop()

    stack.run(stack.server("db"), stack.step("setup", ""), on_up=look)
    assert set(seen) == {"mail", "db"}
    assert (seen["db"].state, seen["db"].address, seen["db"].pid) == ("up", "at db", stack.pid("db"))
    assert (seen["mail"].state, seen["mail"].pid) == ("external", None)
    assert {part.name: part.state for part in stack.record.read()} == {"mail": "external", "db": "down"}


def test_full_disk_does_not_stop_the_parts(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(StackRecord, "write", no_space)
    monkeypatch.setattr(Output, "_append_to_file", no_space)

    stack.run(stack.server("db"), on_up=ask_to_stop)

    assert stack.journal() == ["db started", "db stopped"]
    assert "what runs cannot be written down: [Errno 28]" in stack.said.getvalue()
