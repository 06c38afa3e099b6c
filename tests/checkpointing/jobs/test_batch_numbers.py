"""No batch number is assigned twice within a family of jobs, even after a crash between reservation and start."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointing.jobs.batch_numbers import (
    GAP,
    LIMIT,
    RANGE_SIZE,
    BatchCounterUnreadable,
    BatchNumberCounters,
    BatchNumbersExhausted,
    Counter,
    KnownNumbers,
    extended,
    is_used_up,
    must_extend,
    next_range,
)
from checkpointing.jobs.local_recovery import LocalRestore
from checkpointing.model.batch_numbers import BatchNumbers

FAMILY = "ab" * 16


def leads() -> None:
    """Do nothing: the caller still leads."""


class TermEnded(Exception):
    """Raised if another job manager leads."""


def does_not_lead() -> None:
    raise TermEnded


@pytest.mark.parametrize(
    ("known", "first"),
    [
        (KnownNumbers(counter=20_000), 20_000),
        (KnownNumbers(counter=20_000, end=20_000, greatest=19_999), 20_000),
        (KnownNumbers(counter=20_000, end=10_000, greatest=7), 20_000),
        (KnownNumbers(counter=None, greatest=7), 8 + GAP),
        (KnownNumbers(counter=None, end=30_000, greatest=7), 30_000 + GAP),
        (KnownNumbers(counter=20_000, end=30_000), 30_000 + GAP),
        (KnownNumbers(counter=20_000, greatest=20_000), 20_001 + GAP),
    ],
    ids=[
        "next",
        "all-used",
        "older-snapshot",
        "no-counter",
        "snapshot-of-another-cluster",
        "counter-from-a-backup",
        "number-beyond-the-counter",
    ],
)
def test_a_range_begins_behind_everything_that_is_known(known: KnownNumbers, first: int) -> None:
    """A range begins far behind the known numbers if other attempts may have unknown numbers."""
    assert next_range(FAMILY, known) == BatchNumbers(FAMILY, first, first + RANGE_SIZE)


def test_near_the_greatest_number_the_range_is_refused() -> None:
    last = LIMIT - RANGE_SIZE
    assert next_range(FAMILY, KnownNumbers(last)).end == LIMIT
    with pytest.raises(BatchNumbersExhausted, match=f"of job {FAMILY} have used the batch numbers up to {last + 1}"):
        next_range(FAMILY, KnownNumbers(last + 1))


def test_only_a_number_in_the_upper_half_of_a_range_extends_it() -> None:
    numbers = BatchNumbers(FAMILY, 20_000, 30_000)
    assert [must_extend(numbers, used) for used in (19_000, 24_999, 25_000, 29_999, 30_000)] == [
        False,
        False,
        True,
        True,
        False,
    ], "a number that is not of the range says nothing of it"
    assert extended(numbers, 30_000) == BatchNumbers(FAMILY, 20_000, 40_000)
    assert extended(numbers, 40_000) is None
    assert extended(numbers, None) is None
    last = BatchNumbers(FAMILY, LIMIT - 10_000, LIMIT)
    assert extended(last, LIMIT) is None


@pytest.mark.parametrize(
    ("numbers", "batches", "in_flight", "kept"),
    [
        (BatchNumbers(FAMILY, 20_000, 30_000), {"a": 20_010, "b": 25_000}, False, True),
        (BatchNumbers(FAMILY, 20_000, 30_000), {"a": 20_010, "b": 29_899}, False, True),
        (BatchNumbers(FAMILY, 20_000, 30_000), {"a": 20_010, "b": 29_900}, False, False),
        (BatchNumbers(FAMILY, 20_000, 30_000), {"a": 29_900}, True, True),
        (BatchNumbers(FAMILY, 20_000, 30_000), {"a": 9_950}, False, False),
        (BatchNumbers(FAMILY, 0, 10_000), {}, False, True),
    ],
    ids=["within", "last", "used-up", "begun", "died-before-it-renumbered", "no-batch"],
)
def test_local_state_keeps_its_numbers_unless_they_are_used_up(
    numbers: BatchNumbers, batches: dict[str, int], in_flight: bool, kept: bool
) -> None:
    assert LocalRestore(1, "/w", "t", batches, None, in_flight).keeps(numbers) is kept


def test_ranges_of_a_counter_follow_each_other(tmp_path: Path) -> None:
    counters = BatchNumberCounters(tmp_path / "batch-numbers")
    assert counters.begin(FAMILY, leads) == BatchNumbers(FAMILY, 0, 10_000)
    assert counters.reserve(FAMILY, 10_000, 12, leads) == BatchNumbers(FAMILY, 10_000, 20_000)
    again = BatchNumberCounters(tmp_path / "batch-numbers")
    assert again.begin(FAMILY, leads) == BatchNumbers(FAMILY, 0, 10_000), "an attempt without state begins at 0"
    second = again.reserve(FAMILY, 10_000, 12, leads)
    assert second == BatchNumbers(FAMILY, 20_000, 30_000)
    assert again.extend(second, leads) == BatchNumbers(FAMILY, 20_000, 40_000)
    assert again.extend(second, leads) is None
    assert again.read("cd" * 16) is None
    assert again.read(FAMILY) == Counter(40_000)


def test_a_range_does_not_count_when_the_term_has_ended(tmp_path: Path) -> None:
    counters = BatchNumberCounters(tmp_path)
    first = counters.begin(FAMILY, leads)
    with pytest.raises(TermEnded):
        counters.reserve(FAMILY, 10_000, 5, does_not_lead)
    with pytest.raises(TermEnded):
        counters.extend(first, does_not_lead)
    with pytest.raises(TermEnded):
        counters.begin("cd" * 16, does_not_lead)
    assert [path.name for path in tmp_path.iterdir()] == [f"{FAMILY}.json"]
    assert counters.reserve(FAMILY, 10_000, 5, leads).first == 10_000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"end": "7"}', '{"end": -1}', '{"end": true}', '{"end": 7, "restored": [{}]}']
)
def test_a_damaged_counter_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / f"{FAMILY}.json").write_text(text)
    with pytest.raises(BatchCounterUnreadable, match=FAMILY):
        BatchNumberCounters(tmp_path).reserve(FAMILY, 0, 5, leads)
    assert (tmp_path / f"{FAMILY}.json").read_text() == text


@pytest.mark.parametrize("family", ["", "../../etc/passwd", "AB" * 16])
def test_a_family_that_is_not_a_job_id_creates_no_file(tmp_path: Path, family: str) -> None:
    with pytest.raises(BatchCounterUnreadable, match="is not a job's id"):
        BatchNumberCounters(tmp_path / "batch-numbers").reserve(family, 0, 5, leads)
    assert list(tmp_path.iterdir()) == []


def test_jobs_that_reserve_at_the_same_time_get_different_ranges(tmp_path: Path) -> None:
    """Without a lock, each job would read the counter before the other job has written its range."""
    counters = BatchNumberCounters(tmp_path)
    counters.begin(FAMILY, leads)
    given: list[BatchNumbers] = []
    meet = threading.Barrier(2, timeout=0.2)

    def confirm() -> None:
        try:
            meet.wait()
        except threading.BrokenBarrierError:
            meet.reset()

    def reserve() -> None:
        given.append(BatchNumberCounters(tmp_path).reserve(FAMILY, 10_000, 5, confirm))

    threads = [threading.Thread(target=reserve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(numbers.first for numbers in given) == [10_000, 20_000]


# --- queries that keep their numbers ---------------------------------------------------------------------------------


def test_a_snapshot_gets_the_lowest_batch_that_its_family_restored_since(tmp_path: Path) -> None:
    counters = BatchNumberCounters(tmp_path)
    first = counters.begin(FAMILY, leads)
    second = counters.reserve(FAMILY, 0, 9, leads, {"words": 4})
    counters.extend(second, leads)
    third = counters.reserve(FAMILY, 0, 9, leads, {"words": 4})
    assert counters.restored_since(FAMILY, first, {"words": 7}) == {"words": 4}
    assert counters.restored_since(FAMILY, first, {"words": 4}) == {}, "batches up to 4 were not written again"
    assert counters.restored_since(FAMILY, second, {"words": 9}) == {"words": 4}
    assert counters.restored_since(FAMILY, third, {"words": 9}) == {}, "nothing was restored since"
    assert counters.restored_since(FAMILY, None, {"words": 7}) == {"words": 4}, "of an import"
    assert counters.restored_since(FAMILY, first, {"more": 0}) == {"more": -1}, "it was started without state"
    assert counters.restored_since("cd" * 16, first, {"words": 7}) == {}


def test_a_continued_attempt_that_gets_other_numbers_restores_nothing(tmp_path: Path) -> None:
    counters = BatchNumberCounters(tmp_path)
    first = counters.begin(FAMILY, leads)
    counters.reserve(FAMILY, 0, 9990, leads)
    assert counters.restored_since(FAMILY, first, {"words": 9990}) == {}


def test_restores_that_a_later_one_covers_are_forgotten(tmp_path: Path) -> None:
    counters = BatchNumberCounters(tmp_path)
    for batches in ({"words": 7}, {"words": 4, "more": 1}, {"words": 4}, {"words": 5}, {"words": 5}):
        counters.reserve(FAMILY, 0, 9, leads, batches)
    restored = json.loads((tmp_path / f"{FAMILY}.json").read_text())["restored"]
    assert [each["batches"] for each in restored] == [{"words": 4}, {"words": 5}]


@dataclass
class Replaced:
    """A query that keeps its batch numbers, with a sink that replaces a number's rows.

    `rows` has the writer of the rows of each number.
    """

    counters: BatchNumberCounters
    numbers: BatchNumbers
    rows: dict[int, int] = field(default_factory=dict)
    next: int = 0
    snapshots: list[tuple[BatchNumbers, int, dict[int, int]]] = field(default_factory=list)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.rows[self.next] = self.numbers.first
            self.next += 1
        if self.next > 0:
            made = {number: writer for number, writer in self.rows.items() if number < self.next}
            self.snapshots.append((self.numbers, self.next - 1, made))

    def restore(self, choice: int) -> bool:
        """Restore a snapshot unless the restore is refused. Return whether it was restored."""
        numbers, batch, made = self.snapshots[choice % len(self.snapshots)]
        if self.counters.restored_since(FAMILY, numbers, {"words": batch}):
            return False
        there = {number: writer for number, writer in self.rows.items() if number <= batch}
        assert there == made, "rows of the snapshot's batches are gone"
        self.numbers = self.counters.reserve(FAMILY, 0, batch, leads, {"words": batch})
        self.next = batch + 1
        return True


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20)), min_size=1, max_size=12))
def test_a_state_whose_rows_were_replaced_is_never_restored(steps: list[tuple[int, int]]) -> None:
    """Check random histories. The newest snapshot can always be restored."""
    with TemporaryDirectory() as directory:
        counters = BatchNumberCounters(Path(directory))
        query = Replaced(counters, counters.begin(FAMILY, leads))
        query.run(3)
        for batches, choice in steps:
            query.restore(choice)
            query.run(batches)
        assert query.restore(-1)


# --- new numbers -----------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """One attempt, with its range of numbers and the number of its next batch."""

    job: int
    numbers: BatchNumbers
    next: int


@dataclass
class Snapshot:
    numbers: BatchNumbers | None
    batch: int


@dataclass
class World:
    """Jobs of one family, some of them imported, with a real counter."""

    counters: BatchNumberCounters
    used: set[int] = field(default_factory=set)
    lives: list[Life] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)

    def run(self, life: Life, batches: int) -> None:
        """Commit batches until the driver ends because its numbers are used up."""
        for _ in range(batches):
            if must_extend(life.numbers, life.next - 1):
                life.numbers = self.counters.extend(life.numbers, leads) or life.numbers
            if is_used_up(life.numbers.end, life.next - 1):
                return
            assert life.next not in self.used, "this number has other rows already"
            self.used.add(life.next)
            life.next += 1

    def reach_the_end(self, life: Life) -> None:
        """Skip most of the range, as if its batches had run, and run the remaining batches."""
        life.next = max(life.next, life.numbers.end - 150)
        self.run(life, 300)

    def reserve(self, job: int, snapshot: Snapshot) -> Life:
        former = [life for life in self.lives if life.job == job]
        ends = [life.numbers.end for life in former[-1:]] + ([snapshot.numbers.end] if snapshot.numbers else [])
        known = [snapshot.batch, *(life.next - 1 for life in former[-1:])]
        numbers = self.counters.reserve(FAMILY, max(ends, default=0), max(known), leads)
        return Life(job, numbers, numbers.first + 1)


STEPS = st.tuples(
    st.sampled_from(["run", "end", "snapshot", "restore", "crash", "deposed", "local"]),
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(0, 4),
)


@pytest.mark.parametrize("imported", [False, True], ids=["job", "import"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=st.lists(STEPS, max_size=30))
def test_no_number_is_used_twice(imported: bool, steps: list[tuple[str, int, int, int]]) -> None:
    """Check random histories of runs, restores, clones, crashes after a reservation, and changes of the leader.

    A job restores any snapshot that a job of the family ever took. `imported`: the first snapshots have no numbers.
    """
    with TemporaryDirectory() as directory:
        world = World(BatchNumberCounters(Path(directory)))
        if imported:
            world.used.update(range(40))
            world.snapshots += [Snapshot(None, 20), Snapshot(None, 39)]
        else:
            world.lives.append(Life(0, world.counters.begin(FAMILY, leads), 0))
            world.run(world.lives[0], 3)
            world.snapshots.append(Snapshot(world.lives[0].numbers, 2))
        for step, job, choice, batches in steps:
            snapshot = world.snapshots[choice % len(world.snapshots)]
            newest = [life for life in world.lives if life.job == job][-1:]
            match step:
                case "run" if newest:
                    world.run(newest[0], batches)
                case "end" if newest:
                    world.reach_the_end(newest[0])
                case "snapshot" if newest and newest[0].next > newest[0].numbers.first + 1:
                    world.snapshots.append(Snapshot(newest[0].numbers, newest[0].next - 1))
                case "restore":
                    world.lives.append(world.reserve(job, snapshot))
                    world.run(world.lives[-1], batches)
                case "crash":
                    world.reserve(job, snapshot)
                case "deposed":
                    with pytest.raises(TermEnded):
                        world.counters.reserve(FAMILY, 0, snapshot.batch, does_not_lead)
                case "local" if newest:
                    left = LocalRestore(1, "/w", "t", {"q": newest[0].next - 1}, None)
                    if not left.keeps(newest[0].numbers):
                        kept = Snapshot(newest[0].numbers, newest[0].next - 1)
                        world.lives.append(world.reserve(job, kept))
