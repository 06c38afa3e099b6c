"""Every sink of the table in docs/programs.md under every fault: no row is lost, and duplicates match the table.

In this process, a query for each sink goes through all faults, one after the other. Also, real drivers with a query for
each sink are killed, under Waymark and with plain Spark as the baseline.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from checkpointing.checkpoint_location.local_recovery import LocalState, LocalStateUnusable
from checkpointing.jobs.batch_numbers import BatchNumberCounters
from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.driver_spec import DriverSpec, LocalRecoverySpec, RestoreSpec
from checkpointing.sinks import context
from checkpointing.spark import taken_over
from checkpointing.spark.job import prepare
from checkpointing.spark.plan import function_of
from checkpointing.spark.program import Program
from checkpointing.spark.rescale import SHUFFLE_PARTITIONS
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.starting_state import BatchesWereReplaced
from tests.checkpointing.spark.bench import write_checkpoint
from tests.checkpointing.spark.conftest import ROOT, Driver, Drivers, JobManager
from tests.checkpointing.spark.file_sink_bench import Mount
from tests.checkpointing.spark.programs import every_sink
from tests.checkpointing.spark.sink_table import SINKS, Promise, promises
from tests.checkpointing.spark.taking import JOB
from tests.spark_session import PARTITIONS
from tests.waiting import eventually

# This sink fails if a batch number is repeated, or if an abandoned batch still counts.
IN_EACH_RUN = "marking"
PROGRAM = Path(every_sink.__file__)
ENTRY = "every_sink:queries"


def test_documented_sinks_match_the_tested_sinks() -> None:
    assert {promise.sink for promise in promises().values() if promise.is_run} == {sink.row for sink in SINKS.values()}
    assert SINKS.keys() == every_sink.SINKS.keys()


@dataclass
class Input:
    """Input files with lines "word number". Each line is unique, and all files have the same words."""

    directory: Path
    files: int = 0

    def feed(self) -> None:
        partial = self.directory / f".{self.files}"
        partial.write_text("\n".join(self._lines_of(self.files)))
        os.utime(partial, (self.files + 1, self.files + 1))  # Spark orders the files of one millisecond at random
        partial.rename(self.directory / f"{self.files}.txt")
        self.files += 1

    def lines(self, first: int = 0) -> Counter[str]:
        """Return the lines of all files from the `first` one on."""
        return Counter(line for number in range(first, self.files) for line in self._lines_of(number))

    @staticmethod
    def _lines_of(number: int) -> list[str]:
        return [f"w{each} {number}" for each in range(7)]


@dataclass
class Target:
    """The expected content of the sink `name`: every line, and the duplicates `twice`, which the table allows."""

    name: str
    twice: Counter[str]

    @property
    def promise(self) -> Promise:
        return promises()[SINKS[self.name].row]

    def ran_again(self, column: str, lines: Counter[str]) -> None:
        if lines and self.promise.doubles(column):
            self.twice += lines

    def check(self, fault: str, spark: Any, args: Mapping[str, str], lines: Counter[str]) -> None:
        sink = SINKS[self.name]
        if sink.read is None:
            return
        expected = Counter(line.split()[0] for line in lines.elements()) if sink.has_counts else lines
        found = sink.read(spark, args, self.name)
        assert (expected - found, found - expected) == (Counter(), self.twice), f"{self.name}: lost, doubled by {fault}"


@pytest.fixture
def fed(tmp_path: Path) -> Input:
    (tmp_path / "in").mkdir()
    return Input(tmp_path / "in")


@pytest.fixture
def arguments(fed: Input, spark: Any, tmp_path: Path, postgres_dsn: str) -> dict[str, str]:
    """Return the program's arguments for this process and for drivers. `mount` is a setting of Spark."""
    (tmp_path / "out").mkdir()
    mount = Mount.of(tmp_path / "out")
    mount.add_to(spark)
    return {
        "input": str(fed.directory),
        "output": str(tmp_path / "out"),
        "remote": mount.at,
        "mount": f"spark.hadoop.{mount.key}",
        "dsn": postgres_dsn,
        "tables": f"t_{uuid.uuid4().hex[:8]}",
        "files-per-batch": "1",
    }


def forget_commit(location: Path, batch: int) -> None:
    """Remove the batch's commit, as if Spark had ended between the sink's commit and its own."""
    for name in (f"{batch}", f".{batch}.crc"):
        (location / "commits" / name).unlink(missing_ok=True)


# --- faults within this process --------------------------------------------------------------------------------------


class Job:
    """A job with one query. This process runs its attempts one after the other, as drivers do."""

    def __init__(self, spark: Any, root: Path, fed: Input, args: Mapping[str, str], name: str) -> None:
        self.spark = spark
        self.root = root
        self.fed = fed
        self.args = {**args, "sinks": name, "stateful": "true"}
        self.target = Target(name, Counter())
        self.number = 0
        self.counters = BatchNumberCounters(root / "batch-numbers")
        self.batch_numbers = self.counters.begin(JOB, lambda: None)
        self.timeline = ""
        self.fed_at: dict[str, int] = {}
        self.greatest = -1
        self.query: RunningQuery | None = None

    @property
    def work(self) -> Path:
        return self.root / "attempts" / str(self.number)

    def start(self, restore: CompletedCheckpoint | None = None, *, local: Path | None = None) -> None:
        """Start an attempt that divides the input into other batches than the previous one."""
        self.number += 1
        self.work.mkdir(parents=True)
        self.timeline = self.timeline if local else f"timeline-{self.number}"
        partitions = int(self.spark.conf.get(SHUFFLE_PARTITIONS))
        spec = DriverSpec(
            JOB, "rows", self.number, str(PROGRAM), ENTRY, (), partitions, {}, str(self.work), self.timeline, "", 60.0,
            restore=self._restore_spec(restore) if restore else None,
            local=LocalRecoverySpec(str(local), self.number - 1) if local else None,
            batch_numbers=self._next_numbers(restore) if restore else None,
        )  # fmt: skip
        args = {**self.args, "files-per-batch": str(2 - self.number % 2)}
        program = Program(every_sink.queries, PROGRAM, ENTRY)
        [self.query] = prepare(spec, WorkDirectory(self.work), self.spark, program, args).queries
        self.query.start()

    def _restore_spec(self, restore: CompletedCheckpoint) -> RestoreSpec:
        since = self.counters.restored_since(JOB, restore.batch_numbers, restore.batches)
        return RestoreSpec(restore.location, restore.checkpoint_id, False, False, restored_since=since)

    def _next_numbers(self, restore: CompletedCheckpoint) -> BatchNumbers:
        self.batch_numbers = self.counters.reserve(JOB, 0, self.greatest, lambda: None, restore.batches)
        return self.batch_numbers

    def feed(self) -> None:
        self.fed.feed()
        self.running.spark_query.processAllAvailable()

    @property
    def running(self) -> RunningQuery:
        assert self.query is not None
        return self.query

    def checkpoint(self) -> CompletedCheckpoint:
        number = 1 + len(self.fed_at)
        made = write_checkpoint(self.running.files, self.root, number, batch_numbers=self.batch_numbers)
        self.fed_at[made.location] = self.fed.files
        return made

    @property
    def last_batch(self) -> int:
        batch = self.running.files.last_commit()
        assert batch is not None
        return batch

    def stop(self) -> None:
        self.running.stop()
        if hasattr(sink := function_of(self.running.planned.writer), "close"):
            sink.close()

    def is_right_after(self, fault: str) -> None:
        """Check the sink's content as soon as the query is past the numbers of abandoned batches."""
        self.feed()
        while self.last_batch < self.greatest:
            self.feed()
        self.target.check(fault, self.spark, self.args, self.fed.lines())

    # --- faults ---

    def dies_in_a_batch(self, newest: CompletedCheckpoint) -> None:
        """Continue where the attempt was, or from the `newest` checkpoint with Spark's file sink.

        Spark's file sink would skip the batch, and Spark would not compute its state.
        """
        self._end()
        forget_commit(self.running.planned.location, self.last_batch)
        self.target.ran_again("restart", self.fed.lines(self.fed.files - 1))
        try:
            LocalState.read(self.work).check()
            self.start(local=self.work)
        except LocalStateUnusable:
            assert self.running.planned.output is not None
            self.start(newest)

    def loses_its_machine(self, newest: CompletedCheckpoint) -> None:
        self._end()
        shutil.rmtree(self.work.parent)
        self._start_from(newest, "back")

    def restore(self, checkpoint: CompletedCheckpoint, column: str) -> None:
        self._end()
        self._start_from(checkpoint, column)

    def _end(self) -> None:
        self.stop()
        self.greatest = max(self.greatest, self.last_batch)

    def _start_from(self, checkpoint: CompletedCheckpoint, column: str) -> None:
        self.start(checkpoint)
        self.target.ran_again(column, self.fed.lines(self.fed_at[checkpoint.location]))


@pytest.fixture
def job(spark: Any, tmp_path: Path, fed: Input, arguments: dict[str, str], sink: str) -> Iterator[Job]:
    spark.conf.set(SHUFFLE_PARTITIONS, str(PARTITIONS))
    made = Job(spark, tmp_path, fed, arguments, sink)
    yield made
    if made.query is not None:
        made.stop()
    taken_over.restore_methods()
    context._current = None
    spark.sparkContext.environment.pop("PYTHONPATH", None)  # the path on which a driver's workers find its program


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sink", [each if each == IN_EACH_RUN else pytest.param(each, marks=pytest.mark.nightly) for each in SINKS]
)
def test_no_fault_loses_a_row(job: Job) -> None:
    job.start()
    assert job.running.planned.writes_again == job.target.promise.is_warned_of
    job.feed()
    job.feed()
    older = job.checkpoint()
    job.feed()
    newer = job.checkpoint()
    job.feed()
    job.dies_in_a_batch(newer)
    job.is_right_after("a crash")
    job.loses_its_machine(newer)
    job.is_right_after("the loss of the machine")
    job.restore(older, "back")
    job.is_right_after("a restore back")
    job.restore(older, "back")
    job.is_right_after("a second restore of the same state")
    if job.target.promise.is_refused("forward"):
        with pytest.raises(BatchesWereReplaced):
            job.restore(newer, "forward")
        return
    job.restore(newer, "forward")
    job.is_right_after("a restore forward")
    job.spark.conf.set(SHUFFLE_PARTITIONS, str(PARTITIONS + 1))
    job.restore(job.checkpoint(), "forward")
    job.is_right_after("a rescale")


# --- real drivers ----------------------------------------------------------------------------------------------------


class Runs(Protocol):
    """A runner that starts the program several times, with a query for each sink in `names`."""

    names: list[str]

    def start(self) -> Driver: ...

    def location(self, name: str) -> Path: ...


class UnderWaymark:
    def __init__(self, drivers: Drivers, manager: JobManager, args: Mapping[str, str]) -> None:
        self.names = list(SINKS)
        self._drivers = drivers
        self._manager = manager
        self._args = args
        self._attempts: list[Driver] = []

    def start(self) -> Driver:
        driver = self._drivers.start(
            self._manager,
            ENTRY,
            tuple(f"--{key}={value}" for key, value in {**self._args, "sinks": ",".join(self.names)}.items()),
            attempt=len(self._attempts) + 1,
            local=self._attempts[-1] if self._attempts else None,
            configuration={self._args["mount"]: f"file://{self._args['output']}"},
            program=PROGRAM.name,
        )
        self._attempts.append(driver)
        return driver

    def location(self, name: str) -> Path:
        return self._attempts[-1].work / "queries" / f"{self.names.index(name)}-{name}"


class WithPlainSpark:
    def __init__(self, root: Path, args: Mapping[str, str]) -> None:
        self.names = [name for name, sink in SINKS.items() if not sink.is_ours]
        self._root = root
        self._args = args

    def start(self) -> Driver:
        args = {**self._args, "sinks": ",".join(self.names), "locations": str(self._root / "locations")}
        with (self._root / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *(f"--{key}={value}" for key, value in args.items())],
                cwd=self._root,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Driver(process, self._root)

    def location(self, name: str) -> Path:
        return self._root / "locations" / name


@pytest.fixture(params=["under Waymark", "with plain Spark"])
def runs(request: pytest.FixtureRequest, tmp_path: Path, java_home: Path, arguments: dict[str, str]) -> Runs:
    if request.param == "with plain Spark":
        return WithPlainSpark(tmp_path, arguments)
    return UnderWaymark(request.getfixturevalue("drivers"), request.getfixturevalue("job_manager"), arguments)


def killed_after(runs: Runs, batch: int) -> None:
    """Run the program until each query has committed the batch, and kill it."""
    driver = runs.start()

    def is_committed() -> bool:
        assert driver.process.poll() is None, driver.log[-3000:]
        return all((runs.location(name) / "commits" / str(batch)).exists() for name in runs.names)

    try:
        eventually(f"batch {batch} of each query", is_committed)
    finally:
        if driver.process.poll() is None:
            driver.kill()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_no_row_is_lost_when_the_driver_is_killed(
    runs: Runs, fed: Input, spark: Any, arguments: dict[str, str]
) -> None:
    fed.feed()
    fed.feed()
    killed_after(runs, 1)
    targets = [Target(name, Counter()) for name in runs.names]
    for target in targets:
        forget_commit(runs.location(target.name), 1)
        target.ran_again("restart", fed.lines(1))
    fed.feed()
    killed_after(runs, 2)
    for target in targets:
        target.check("a kill", spark, arguments, fed.lines())
