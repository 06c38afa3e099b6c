"""Stuck queries, incompatible states and missing input cause clear errors, with real Spark. Other queries continue."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.driver_spec import DriverSpec, RestoreSpec
from checkpointing.spark import taken_over
from checkpointing.spark.job import SparkJob, plan_queries, prepare
from checkpointing.spark.lost_input import InputLost
from checkpointing.spark.program import Program
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.starting_state import NoState
from checkpointing.spark.state_schema import StateDoesNotFit
from checkpointing.state import SourceInputLost
from checkpointing.storage import verify
from tests.checkpointing.spark import taking
from tests.checkpointing.spark.bench import RANGES

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    """Give PySpark back after the test, because `prepare` takes it over for the rest of a driver's process."""
    yield
    taken_over.restore_methods()


class Words:
    """A directory of words, one file per batch, and queries over it."""

    def __init__(self, spark: Any, root: Path, name: str = "in") -> None:
        self.spark = spark
        self.input = root / name
        self.input.mkdir()
        self._number = 0

    def feed(self, *words: str) -> Path:
        self._number += 1
        partial = self.input / f".{self._number}"
        partial.write_text("\n".join(words))
        return partial.rename(self.input / f"{self._number}.txt")

    def lines(self) -> Any:
        return self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.input))

    def counting(self, *keys: str, name: str = "words", each: Callable[[], None] = lambda: None) -> Any:
        def batch(frame: Any, number: int) -> None:
            frame.collect()
            each()

        counts = self.lines().groupBy(*(keys or ("value",))).count()
        return counts.writeStream.outputMode("update").queryName(name).foreachBatch(batch)


def query(writer: Any, directory: Path) -> RunningQuery:
    [planned] = plan_queries([writer], WorkDirectory(directory), NoState("job"), {})
    return RunningQuery(planned)


def checkpoint_of(running: RunningQuery, root: Path, eventually: Callable[..., object]) -> CompletedCheckpoint:
    agent = taking.Taking([running], root)
    agent.trigger(1)
    checkpoint = agent.complete(1, eventually)
    agent.agent.close()
    return checkpoint


def test_a_query_stuck_in_a_batch_is_named_and_the_others_continue(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """The job manager expires the checkpoint. The next checkpoint, after the batch, completes."""
    goes_on, words, others = threading.Event(), Words(spark, tmp_path), Words(spark, tmp_path, "others")
    stuck = words.counting(name="stuck", each=lambda: goes_on.wait(120) and None)
    writers = [stuck, others.counting(name="lively")]
    planned = plan_queries(writers, WorkDirectory(tmp_path / "work"), NoState("job"), {})
    queries = [RunningQuery(each) for each in planned]
    words.feed("a")
    others.feed("a")
    for each in queries:
        each.start()
    eventually("both have begun", lambda: all(each.files.next_boundary() == 0 for each in queries))
    eventually("one has ended a batch", lambda: queries[1].files.has_committed(0))
    agent = taking.Taking(queries, tmp_path)
    agent.trigger(1)

    def reported_delays() -> list[str]:
        agent.agent.tick()
        return agent.reports.delays.get(1, [])[-1:]

    # Until then the checkpoint may also wait for the other query's files.
    expected = "Query 'stuck' has not come to the end of batch 0; Spark says: Processing new data."
    eventually("it waits for this query alone", lambda: reported_delays() == [expected])
    others.feed("b")
    eventually("another batch of the other query", lambda: queries[1].files.has_committed(1))
    agent.agent.aborted(1)
    goes_on.set()
    agent.trigger(2)
    assert agent.complete(2, eventually).batches == {"stuck": 0, "lively": 1}
    for each in queries:
        each.stop()
    agent.agent.close()


def test_a_state_of_another_schema_is_refused_with_operator_and_difference(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    words = Words(spark, tmp_path)
    first = query(words.counting(), tmp_path / "first")
    words.feed("a", "b")
    first.start()
    first._query.processAllAvailable()
    checkpoint = checkpoint_of(first, tmp_path, eventually)
    first.stop()
    changed = query(
        words.lines().selectExpr("value", "length(value) AS n").groupBy("value", "n").count()
        .writeStream.outputMode("update").queryName("words").foreachBatch(lambda frame, _: frame.collect()),
        tmp_path / "changed",
    )  # fmt: skip
    taking.restore(checkpoint, [changed.planned])
    words.feed("c")
    changed.start()
    eventually("its end", lambda: not changed.is_active)
    info = changed.failure(7)
    assert info is not None
    assert not info.recoverable, "no new try changes the program"
    assert info.message.startswith(
        "The restored state of 'aggregate (stateStoreSave)' in query 'words' does not fit the program: "
        "its key is (value: string), the program's is (value: string, n: integer)."
    )
    assert verify(checkpoint.location, deep=True).files == checkpoint.files


def test_a_state_of_another_schema_is_refused_before_the_log_of_the_file_sink_is_restored(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    words, output = Words(spark, tmp_path), tmp_path / "out"

    def distinct(*columns: str) -> Any:
        frame = words.lines().selectExpr("value", "length(value) AS n").dropDuplicates(list(columns))
        return frame.writeStream.queryName("words").format("json").option("path", str(output))

    first = query(distinct("value"), tmp_path / "first")
    words.feed("a", "b")
    first.start()
    first._query.processAllAvailable()
    checkpoint = checkpoint_of(first, tmp_path, eventually)
    words.feed("c")
    first._query.processAllAvailable()
    first.stop()

    def seen() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in output.rglob("*") if path.is_file()}

    before = seen()
    with pytest.raises(
        StateDoesNotFit, match=r"its key is \(value: string\), the program's is \(value: string, n: integer\)"
    ):
        prepared(spark, checkpoint, tmp_path / "changed@work", lambda: distinct("value", "n"))
    assert seen() == before, "readers see what they saw"
    restored = prepared(spark, checkpoint, tmp_path / "same@work", lambda: distinct("value")).restored
    assert restored["words"] > 0, "its batches have new numbers"
    assert seen() != before


def test_a_state_fits_by_the_settings_that_its_first_batch_recorded(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """An older Spark, whose states are not nullable, does not know the setting and records that it is off."""
    words, nullable = Words(spark, tmp_path), "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"
    spark.conf.set(nullable, "false")
    try:
        first = query(words.counting(), tmp_path / "first")
        words.feed("a", "b")
        first.start()
        first._query.processAllAvailable()
    finally:
        spark.conf.unset(nullable)
    checkpoint = checkpoint_of(first, tmp_path, eventually)
    first.stop()

    again = prepared(spark, checkpoint, tmp_path / "again", words.counting)

    assert again.restored["words"] > 0
    assert spark.conf.get(nullable) == "true", "the job's own settings stay"
    words.feed("c")
    [running] = again.queries
    running.start()
    running._query.processAllAvailable()
    assert running.is_active
    running.stop()


def prepared(
    spark: Any, checkpoint: CompletedCheckpoint, root: Path, writer: Callable[[], Any], *, allowed: bool = False
) -> SparkJob:
    """Prepare a job from the checkpoint as a driver does before it starts the queries."""
    work = WorkDirectory(root)
    work.root.mkdir()
    (work.root / "program.py").touch()
    program = Program(lambda spark, arguments: writer(), work.root / "program.py", "program:main")
    spec = DriverSpec(
        "cd" * 16, "words", 1, str(program.path), program.entry_class, (), None, {}, str(work.root), "t-2",
        "", 60.0, RestoreSpec(checkpoint.location, 1, is_savepoint=False, allow_non_restored_state=allowed),
        batch_numbers=next(RANGES),
    )  # fmt: skip
    return prepare(spec, work, spark, program, {})


def test_missing_input_is_named_before_anything_runs(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """The next batch was already listed when the checkpoint was taken. Spark alone would skip its missing file."""
    held, goes_on, words = threading.Event(), threading.Event(), Words(spark, tmp_path)
    goes_on.set()

    def hold() -> None:
        held.set()
        goes_on.wait(120)

    first = query(words.counting(each=hold), tmp_path / "first")
    words.feed("a")
    first.start()
    first._query.processAllAvailable()
    goes_on.clear()
    held.clear()
    lost = words.feed("b")
    eventually("the next batch", held.is_set)
    batch = first.files.last_commit()
    assert batch is not None
    checkpoint = _taken_at(first, batch, tmp_path, eventually)
    goes_on.set()
    first._query.processAllAvailable()
    first.stop()

    def on(directory: str, *, allowed: bool = False) -> SparkJob:
        return prepared(spark, checkpoint, tmp_path / directory, words.counting, allowed=allowed)

    assert on("whole").restored["words"] > batch
    lost.unlink()
    message = rf"'words' must read the input after batch {batch} again, .*/in/2.txt cannot be found"
    with pytest.raises(InputLost, match=message):
        on("lost")
    assert on("allowed", allowed=True).restored["words"] > batch
    assert verify(checkpoint.location, deep=True).files == checkpoint.files


class Forgetful(DataSource):
    """A source with rows 0 to 9 that loses the first rows once its file `forgotten` exists."""

    @classmethod
    def name(cls) -> str:
        return "forgetful"

    def schema(self) -> str:
        return "row int"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ForgetfulReader(Path(self.options["forgotten"]))


class ForgetfulReader(DataSourceStreamReader):
    def __init__(self, forgotten: Path) -> None:
        self._forgotten = forgotten

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"row": 20 if self._forgotten.exists() else 10}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        if self._forgotten.exists():
            raise SourceInputLost(f"rows {partition.value[0]} to {partition.value[1] - 1} were removed after 7 days.")
        yield from ((row,) for row in range(*partition.value))


@pytest.mark.nightly
def test_a_source_that_reports_lost_input_fails_the_job_permanently_with_its_message(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    spark.dataSource.register(Forgetful)
    rows = spark.readStream.format("forgetful").option("forgotten", str(tmp_path / "forgotten")).load()
    running = query(rows.writeStream.queryName("rows").format("noop"), tmp_path / "first")
    running.start()
    eventually("a batch", lambda: running.files.has_committed(0))
    (tmp_path / "forgotten").touch()
    eventually("its end", lambda: not running.is_active)
    info = running.failure(7)
    assert info is not None
    assert not info.recoverable
    assert info.message.startswith(
        "A source of query 'rows' has lost input that it should read: rows 10 to 19 were removed after 7 days."
    )


class _At:
    """A view of a query at the end of `batch`, without later batches."""

    def __init__(self, running: RunningQuery, batch: int) -> None:
        self._running = running
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._running, name)

    @property
    def files(self) -> Any:
        return _FilesAt(self._running.files, self._batch)


class _FilesAt:
    def __init__(self, files: Any, batch: int) -> None:
        self._files = files
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def next_boundary(self) -> int:
        return self._batch


def _taken_at(running: RunningQuery, batch: int, root: Path, eventually: Callable[..., object]) -> CompletedCheckpoint:
    return checkpoint_of(_At(running, batch), root, eventually)  # type: ignore[arg-type]
