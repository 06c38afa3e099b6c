"""A thread that writes much gives way to whoever computes, and to nobody else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from checkpointing.storage import files, giving_way
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.giving_way import GivingWay, Processors

MIB = 1 << 20
A_SECOND = 64 * MIB
LEAST_S = MIB / A_SECOND
# Until it is known that nobody wants the processors.
BEGINNING_S = 0.3


class Machine:
    """Its clock, and what it says of its two processors."""

    def __init__(self, stat: BinaryIO) -> None:
        self._stat = stat
        self._computed_s = 4711.0
        self.others = 0.0  # of the processors' time, what others compute
        self.now_s = 1_000_000.0
        self.rested_s = 0.0
        self.passes(0.0)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.rested_s += seconds
        self.passes(seconds)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self._computed_s += 2 * seconds * self.others
        user, rest = round(self._computed_s * 100), round((2 * self.now_s - self._computed_s) * 100)
        # Of one length, in place: to truncate a file thousands of times takes seconds.
        self._stat.seek(0)
        self._stat.write(b"cpu  %012d 1 2 %012d 3 4 5 6 0 0\ncpu0 7 7 7 7 7 7 7 7 0 0\n" % (user, rest))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    path = tmp_path / "stat"
    monkeypatch.setattr(giving_way, "_STAT", str(path))
    with path.open("wb", buffering=0) as stat:
        machine = Machine(stat)
        monkeypatch.setattr(giving_way, "time", machine)
        yield machine


def write(machine: Machine, way: GivingWay, mebibytes: int, took_s: float = 0.001) -> float:
    """The seconds that it took in all, rests included, where each mebibyte took as long as is said."""
    began_s = machine.now_s
    for _ in range(mebibytes):
        machine.passes(took_s)
        way.wrote(MIB)
    return machine.now_s - began_s


def giving_way_to_others() -> GivingWay:
    return GivingWay(A_SECOND, processors=Processors())


@pytest.mark.parametrize("others", [0.0, 0.05, 0.15])
def test_where_hardly_anybody_computes_it_never_rests(machine: Machine, others: float) -> None:
    machine.others = others
    way = giving_way_to_others()
    write(machine, way, 100)
    assert machine.rested_s < BEGINNING_S
    assert write(machine, way, 1000) == pytest.approx(1.0)


@pytest.mark.parametrize("others", [0.5, 0.8, 1.0])
def test_where_others_compute_it_keeps_to_the_limit(machine: Machine, others: float) -> None:
    machine.others = others
    assert write(machine, giving_way_to_others(), 1000) == pytest.approx(1000 * LEAST_S, rel=0.01)


def test_the_more_others_compute_the_more_it_rests(machine: Machine) -> None:
    rested = []
    for machine.others in (0.25, 0.3, 0.35):
        before_s = machine.rested_s
        write(machine, giving_way_to_others(), 1000)
        rested.append(machine.rested_s - before_s)
    assert BEGINNING_S < rested[0] < rested[1] < rested[2]


def test_nothing_is_known_at_the_beginning(machine: Machine) -> None:
    """As a snapshot begins when a batch has ended: the next one plans for a moment, then it computes."""
    assert write(machine, giving_way_to_others(), 4) == pytest.approx(4 * LEAST_S)


def test_it_gives_way_to_each_batch_and_to_nothing_between(machine: Machine) -> None:
    machine.others = 0.1
    way = giving_way_to_others()
    write(machine, way, 100)
    for _ in range(10):
        machine.others = 0.5
        beside_a_batch_s = write(machine, way, 120)
        machine.others = 0.1
        after_it_s = write(machine, way, 1000)
        assert beside_a_batch_s > 0.6 * 120 * LEAST_S
        assert after_it_s < 1.0 + BEGINNING_S


def test_a_disk_that_is_slower_needs_no_rests(machine: Machine) -> None:
    machine.others = 1.0
    write(machine, giving_way_to_others(), 100, 2 * LEAST_S)
    assert machine.rested_s == 0


def test_what_others_compute_is_known_to_all_threads(machine: Machine) -> None:
    processors = Processors()
    write(machine, GivingWay(A_SECOND, processors=processors), 100)
    rested_s = machine.rested_s
    write(machine, GivingWay(A_SECOND, processors=processors), 100)
    assert machine.rested_s == rested_s


def test_what_was_long_ago_is_forgotten(machine: Machine) -> None:
    processors = Processors()
    write(machine, GivingWay(A_SECOND, processors=processors), 100)
    assert processors.wanted() == 0.0
    machine.passes(10.0)
    assert processors.wanted() == 1.0


def test_a_machine_that_says_the_same_twice_is_asked_again(machine: Machine) -> None:
    """Its ticks are hundredths of a second, and it may be busy with others than us."""
    processors = Processors()
    assert processors.wanted() == 1.0
    machine.now_s += 0.05
    assert processors.wanted() == 1.0
    machine.passes(0.5)
    assert processors.wanted() == 0.0


@pytest.mark.parametrize("said", [None, "", "cpu  0 0 0 0 0 0 0 0 0 0\n", "cpu  a lot\n"])
def test_where_nobody_says_what_others_compute_it_never_rests(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    stat = tmp_path / "elsewhere"
    if said is not None:
        stat.write_text(said)
    monkeypatch.setattr(giving_way, "_STAT", str(stat))
    write(machine, giving_way_to_others(), 100)
    assert machine.rested_s == 0


def test_who_hurries_rests_no_more(machine: Machine) -> None:
    machine.others = 1.0
    hurries_at_s = machine.now_s + 1.0
    took_s = write(machine, GivingWay(A_SECOND, lambda: machine.now_s >= hurries_at_s, Processors()), 1000, 0.002)
    in_the_first_second = 1.0 / LEAST_S
    assert took_s == pytest.approx(1.0 + (1000 - in_the_first_second) * 0.002, rel=0.01)


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
def busy_processors() -> Iterator[None]:
    """All of them, by processes of ours."""
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


@pytest.mark.skipif(not Path(giving_way._STAT).exists(), reason="this system does not say what its processors do")
@pytest.mark.usefixtures("busy_processors")
def test_linux_says_that_others_compute() -> None:
    processors = Processors()
    for _ in range(20):
        time.sleep(giving_way._LOOKS_EACH_S)
        wanted = processors.wanted()
    assert wanted == 1.0
    assert processors._computing > giving_way._SOMEBODY
