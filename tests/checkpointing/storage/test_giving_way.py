"""A thread that writes much gives way to whoever wants its processor, and to nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from checkpointing.storage import files, giving_way
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.giving_way import GivingWay

MIB = 1 << 20
A_SECOND = 64 * MIB
LEAST_S = MIB / A_SECOND


class Machine:
    """Its clock, and what it says of the one thread that it has."""

    def __init__(self, scheduled: Path) -> None:
        self._scheduled = scheduled
        self._waited_s = 0.0
        self.now_s = 0.0
        self.rested_s = 0.0
        self.passes(0.0)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.rested_s += seconds

    def passes(self, seconds: float, waited_s: float = 0.0) -> None:
        """`waited_s` of them the thread was ready to run and had no processor."""
        self.now_s += seconds
        self._waited_s += waited_s
        self._scheduled.write_text(f"12345678 {round(self._waited_s * 1e9)} 42\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    scheduled = tmp_path / "schedstat"
    monkeypatch.setattr(giving_way, "_SCHEDULED", str(scheduled))
    machine = Machine(scheduled)
    monkeypatch.setattr(giving_way, "time", machine)
    return machine


def write(machine: Machine, mebibytes: int, took_s: float, waited_s: float) -> float:
    """The seconds that it took in all, rests included, where each mebibyte took and waited as long as is said."""
    began_s = machine.now_s
    with GivingWay(A_SECOND) as way:
        for _ in range(mebibytes):
            machine.passes(took_s, waited_s)
            way.wrote(MIB)
    return machine.now_s - began_s


def test_who_never_waits_never_rests(machine: Machine) -> None:
    assert write(machine, 1000, 0.001, 0.0) == pytest.approx(1.0)


def test_a_short_wait_is_usual(machine: Machine) -> None:
    write(machine, 1000, 0.001, 0.001 / 10)
    assert machine.rested_s == 0


@pytest.mark.parametrize("waited", [0.5, 0.9, 1.0])
def test_who_waits_most_of_the_time_keeps_to_the_limit(machine: Machine, waited: float) -> None:
    assert write(machine, 1000, 0.002, 0.002 * waited) == pytest.approx(1000 * LEAST_S)


def test_the_more_it_waits_the_more_it_rests(machine: Machine) -> None:
    rested = []
    for waited_s in (0.00015, 0.00025, 0.00035):
        before_s = machine.rested_s
        write(machine, 100, 0.001, waited_s)
        rested.append(machine.rested_s - before_s)
    assert 0 < rested[0] < rested[1] < rested[2]


def test_waits_that_come_in_bursts_count_as_much(machine: Machine) -> None:
    """As they do: a thread has its processor for a while, and then another one has it."""
    with GivingWay(A_SECOND) as way:
        for number in range(1000):
            machine.passes(*((0.002, 0.0) if number % 4 else (0.006, 0.004)))
            way.wrote(MIB)
    assert machine.now_s == pytest.approx(1000 * LEAST_S, rel=0.01)


def test_short_waits_now_and_then_are_usual(machine: Machine) -> None:
    """As where nobody else wants a processor: one thread of a copy waits for another, or for the kernel's."""
    with GivingWay(A_SECOND) as way:
        for number in range(1, 1001):
            machine.passes(*((0.001, 0.0) if number % 40 else (0.004, 0.003)))
            way.wrote(MIB)
    assert machine.rested_s == 0


def test_who_has_long_not_waited_gives_way_soon(machine: Machine) -> None:
    with GivingWay(A_SECOND) as way:
        for _ in range(100_000):
            machine.passes(0.001)
            way.wrote(MIB)
        assert machine.rested_s == 0
        began_s = machine.now_s
        for _ in range(1000):
            machine.passes(0.002, 0.001)
            way.wrote(MIB)
    assert machine.now_s - began_s == pytest.approx(1000 * LEAST_S, rel=0.1)


def test_one_long_wait_is_paid_for_and_forgotten(machine: Machine) -> None:
    with GivingWay(A_SECOND) as way:
        machine.passes(60.0, 60.0)
        for _ in range(1000):
            machine.passes(0.001)
            way.wrote(MIB)
    assert 0.5 * giving_way._MOST_OWED_S < machine.rested_s <= giving_way._MOST_OWED_S


def test_a_disk_that_is_slower_needs_no_rests(machine: Machine) -> None:
    write(machine, 100, 2 * LEAST_S, LEAST_S)
    assert machine.rested_s == 0


def test_what_it_waited_before_is_not_counted(machine: Machine) -> None:
    machine.passes(100.0, 100.0)
    write(machine, 100, 0.001, 0.0)
    assert machine.rested_s == 0


def test_where_nobody_says_how_long_it_waited_it_never_rests(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giving_way, "_SCHEDULED", str(tmp_path / "missing"))
    write(machine, 100, 0.001, 0.001)
    assert machine.rested_s == 0


def test_who_hurries_rests_no_more(machine: Machine) -> None:
    with GivingWay(A_SECOND, lambda: machine.now_s >= 1.0) as way:
        for _ in range(1000):
            machine.passes(0.002, 0.002)
            way.wrote(MIB)
    in_the_first_second = 1.0 / LEAST_S
    assert machine.now_s == pytest.approx(1.0 + (1000 - in_the_first_second) * 0.002, rel=0.01)


def test_every_byte_that_a_copy_hands_over_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(GivingWay, "wrote", lambda _, size: told.append(size))
    monkeypatch.setattr(files, "_linked", lambda *_: False)
    source = tmp_path / "000213.sst"
    source.write_bytes(os.urandom(3 * MIB + 4096 + 7))
    LocalFiles().put(source, str(tmp_path / "shared" / "x"))
    if not told:
        pytest.skip(f"the file system of {tmp_path} writes nothing past the page cache")
    assert told == [MIB, MIB, MIB, 4096]
    assert (tmp_path / "shared" / "x").read_bytes() == source.read_bytes()


@pytest.fixture
def busy_processor() -> Iterator[int]:
    """One that a process of ours leaves to nobody."""
    processor = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{processor}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield processor
        finally:
            process.kill()


def on(processor: int, act: Callable[[], None]) -> None:
    """In a thread that may run nowhere else."""

    def pinned() -> None:
        os.sched_setaffinity(0, [processor])
        act()

    with ThreadPoolExecutor(1) as executor:
        executor.submit(pinned).result()


@pytest.mark.skipif(not Path(giving_way._SCHEDULED).exists(), reason="this system does not say how long a thread waits")
def test_linux_says_that_it_waited(busy_processor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(giving_way, "time", SimpleNamespace(monotonic=time.monotonic, sleep=rests.append))

    def computes() -> None:
        with GivingWay(A_SECOND) as way:
            sum(range(5_000_000))
            way.wrote(1 << 40)

    on(busy_processor, computes)
    assert rests, "it shared its processor with a process that computes"
