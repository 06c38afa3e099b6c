"""Waymark takes over PySpark's calls in a program: the driver runs the queries, and the program sees them run."""

from __future__ import annotations

import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import DataStreamWriter

from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.spark import taken_over
from checkpointing.spark.job import plan_queries, run_program, write_query_ids
from checkpointing.spark.program import (
    Program,
    ProgramError,
    ScriptExited,
    as_writers,
    guard_batch_functions,
    load_program,
)
from checkpointing.spark.program_run import ProgramRun
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.starting_state import NoState, build_queries
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPT = """
import sys
import time
from pyspark.sql import SparkSession

if __name__ == "__main__":
    builder = SparkSession.builder.appName("Own").master("local[7]")
    spark = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()

    def say(*words):
        with open(sys.argv[1], "a") as said:
            print(*words, file=said)

    def rows(**options):
        return spark.readStream.format("rate-micro-batch").options(rowsPerBatch=5, **options).load()
"""


@pytest.fixture(autouse=True)
def _own_process() -> Iterator[None]:
    argv, main, path = sys.argv, sys.modules["__main__"], list(sys.path)
    yield
    taken_over.restore_methods()
    guard_batch_functions()
    sys.argv, sys.modules["__main__"], sys.path[:] = argv, main, path


class Job:
    """A script, and the driver's work for it."""

    def __init__(self, spark: Any, directory: Path, source: str) -> None:
        self.spark, self._directory = spark, directory
        self.said = directory / "said"
        self.said.touch()
        file = directory / f"{uuid.uuid4()}_my-script.py"
        lines = "".join(f"    {line}\n" for line in source.strip().splitlines())
        file.write_text(SCRIPT + lines)
        self._program = load_program(file, "my-script.py", directory / "program")
        self.run: ProgramRun = run_program(self._program, spark, [str(self.said)])
        self.queries: list[RunningQuery] = []
        self._raised: list[Exception] = []
        guard_batch_functions(on_error=self._raised.append)

    def start(self) -> list[RunningQuery]:
        returned = self.run.until_settled()
        writers = as_writers(returned, "my-script.py", [query.writer for query in self.run.queries])
        assert self.spark.streams._jsqm.active() is not None
        planned = plan_queries(writers, WorkDirectory(self._directory), NoState("job"), {})
        build_queries(NoState("job"), self.spark, self._directory, planned)
        write_query_ids(self.run, planned)
        self.queries = [RunningQuery(query) for query in planned]
        for query in self.queries:
            query.function_error = lambda: self._raised[-1] if self._raised else None
            query.start()
        self.run.begin(self.queries)
        return self.queries

    def look_after(self) -> bool:
        """Note ended queries as the driver's loop does, and return whether the program has ended."""
        for query in self.queries:
            if not query.is_active:
                assert query.failure(0) is None
                self.run.note_ended(query.name)
        return self.run.has_ended

    def await_end(self) -> list[str]:
        eventually("the script's end", self.look_after)
        if self.run.error is not None:
            raise self.run.error
        return self.said.read_text().split()


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    jobs: list[Job] = []

    def make(source: str) -> Job:
        jobs.append(Job(spark, tmp_path, source))
        return jobs[-1]

    yield make
    for each in jobs:
        for query in each.queries:
            if query.spark_query is not None:
                query.stop()


def test_a_script_continues_when_its_queries_which_keep_their_names_have_ended(
    job: Callable[[str], Job],
) -> None:
    made = job("""
first = rows().writeStream.format("noop").trigger(once=True).start()
early = first.id
second = rows().writeStream.start(format="noop", queryName="second", outputMode="append")
spark.streams.awaitAnyTermination()
say(first.id == early, early == first.lastProgress["id"], spark.streams.get(second.id) is second)
say("any", first.isActive, second.isActive, first.name, len(spark.streams.active))
say(second.awaitTermination(0.01))
second.stop()
say(second.awaitTermination())
spark.stop()
""")
    assert [query.name for query in made.start()] == ["query-0", "second"]
    assert made.await_end() == ["True"] * 3 + ["any", "False", "True", "query-0", "1", "False", "None"]
    assert made.spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert made.spark.sparkContext.master != "local[7]"


def test_a_handle_is_the_query_that_runs(job: Callable[[str], Job]) -> None:
    made = job("""
query = rows().writeStream.format("memory").queryName("numbers").start()
while query.lastProgress is None:
    time.sleep(0.01)
say(query.id, query.runId, query.lastProgress["name"], query.exception(), query.status["isDataAvailable"])
say(spark.streams.get(query.id) is query)
query.stop()
""")
    [query] = made.start()
    text = made.await_end()
    assert text == [query.spark_id, query.run_id, "numbers", "None", text[4], "True"]


def test_a_query_that_a_function_returned_is_found_by_its_batches(spark: Any, tmp_path: Path) -> None:
    """Sinks find their query in this way."""
    names: list[str] = []

    def function(session: Any, arguments: dict[str, str]) -> Any:
        def write(frame: Any, batch: int) -> None:
            identity = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            names.append(session.streams.get(identity).name)

        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        return rows.writeStream.queryName("found").foreachBatch(write)

    run = run_program(Program(function, tmp_path / "job.py", "job:function"), spark, {})
    [planned] = plan_queries([run.until_settled()], WorkDirectory(tmp_path), NoState("job"), {})
    query = RunningQuery(planned)
    query.start()
    run.begin([query])
    eventually("a batch", lambda: names)
    query.stop()
    assert set(names) == {"found"}


def test_a_script_that_ends_without_waiting_leaves_its_queries_running(job: Callable[[str], Job]) -> None:
    made = job("""
query = rows().writeStream.foreachBatch(lambda frame, batch: say("batch", batch)).start()
spark.stop()
sys.exit(0)
""")
    [query] = made.start()
    eventually("its function is called", lambda: "batch 1" in made.said.read_text())
    assert made.run.has_ended
    assert query.is_active


def test_each_query_runs_in_the_scheduler_pool_of_its_start(job: Callable[[str], Job]) -> None:
    made = job("""
def pool(frame, batch):
    say(frame.sparkSession.sparkContext.getLocalProperty("spark.scheduler.pool"))

for name in ("slow", None):
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    rows().writeStream.trigger(once=True).foreachBatch(pool).start()
for query in spark.streams.active:
    query.awaitTermination()
""")
    made.start()
    assert set(made.await_end()) == {"slow", "None"}


def test_a_loop_over_is_active_is_a_wait(job: Callable[[str], Job]) -> None:
    made = job("""
query = rows().writeStream.format("noop").trigger(once=True).start()
while query.isActive:
    time.sleep(0.01)
say("over")
""")
    made.start()
    assert made.await_end() == ["over"]


def test_streams_are_awaited_one_after_the_other(job: Callable[[str], Job]) -> None:
    made = job("""
for number in range(2):
    rows().writeStream.format("noop").trigger(once=True).start()
while spark.streams.active:
    spark.streams.resetTerminated()
    spark.streams.awaitAnyTermination()
say("over")
""")
    assert len(made.start()) == 2
    assert made.await_end() == ["over"]


def test_a_table_at_a_path_is_written(job: Callable[[str], Job], tmp_path: Path) -> None:
    made = job(f"""
query = rows().writeStream.trigger(once=True).toTable("written", path={str(tmp_path / "table")!r}, format="json")
query.awaitTermination()
say(spark.table("written").count())
spark.sql("DROP TABLE written")
""")
    [query] = made.start()
    assert str(query.files.sink_log) == f"file:{tmp_path}/table"
    assert made.await_end() == ["5"]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("say('nothing')", ProgramError, "ended without starting a streaming query"),
        ("spark.streams.awaitAnyTermination()", ProgramError, "ended without starting a streaming query"),
        ("rows().writeStream.toTable('managed')", ProgramError, "the table would be gone after a restart"),
        ("rows().writeStream.toTable('t', path='below')", ProgramError, "'below' is below Spark's warehouse"),
        ("sys.exit('wrong usage')", ScriptExited, "ended with exit code wrong usage"),
        ("rows().writeStream.start(path=1 / 0)", ZeroDivisionError, "division by zero"),
    ],
)
def test_a_script_that_cannot_run_reports_the_cause(
    job: Callable[[str], Job], source: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        job(source).start()


def test_a_query_that_is_started_too_late_does_not_run(job: Callable[[str], Job]) -> None:
    made = job("""
first = rows().writeStream.format("noop").trigger(once=True).start()
first.awaitTermination()
rows().writeStream.format("noop").start()
""")
    made.start()
    with pytest.raises(ProgramError, match="Start all queries before the program first waits"):
        made.await_end()


def test_a_query_within_a_batch_fails_the_batch(job: Callable[[str], Job]) -> None:
    made = job("""
def write(frame, batch):
    rows().writeStream.format("noop").start()
rows().writeStream.foreachBatch(write).start().awaitTermination()
""")
    [query] = made.start()
    info = eventually("its failure", lambda: query.failure(0))
    assert info is not None
    assert (info.name, info.recoverable) == ("ProgramError", False)
    assert "none within the function of foreachBatch" in info.message


def test_an_exception_of_the_program_named_like_one_of_waymark_is_recoverable(job: Callable[[str], Job]) -> None:
    made = job("""
class SinkTableTaken(Exception): ...
def write(frame, batch):
    raise SinkTableTaken("another shift has the table")
rows().writeStream.foreachBatch(write).start().awaitTermination()
""")
    [query] = made.start()
    info = eventually("its failure", lambda: query.failure(0))
    assert info is not None
    assert (info.name, info.recoverable) == ("SinkTableTaken", True)


@pytest.mark.parametrize("setting", ["option", "conf"])
def test_a_checkpoint_location_of_the_program_that_is_in_use_is_never_overridden(
    job: Callable[[str], Job], tmp_path: Path, setting: str
) -> None:
    location = tmp_path / "own" / "words"
    if setting == "option":
        writer = "rows().writeStream.queryName('words').format('noop')"
        source = f"{writer}.option('checkpointLocation', 'file:{location}').start()"
    else:
        root = f"spark.conf.set('spark.sql.streaming.checkpointLocation', {str(location.parent)!r})"
        source = f"{root}\nrows().writeStream.format('noop').queryName('words').start()"
    (location / "commits").mkdir(parents=True)
    job(source).start()
    taken_over.restore_methods()
    (location / "commits" / "7").touch()
    (location / "commits" / ".7.crc").touch()
    with pytest.raises(
        ProgramError, match=f"/words, which has 1 committed batches.*--from-checkpoint words=.*{location}"
    ):
        job(source).start()


def test_a_program_cannot_replace_the_signal_handlers_of_the_driver(job: Callable[[str], Job]) -> None:
    made = job("""
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
rows().writeStream.format("noop").start()
""")
    before = signal.getsignal(signal.SIGTERM)
    made.start()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_pyspark_with_other_methods_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**taken_over._ORIGINALS, (DataStreamWriter, "start"): lambda self, everything: None}
    with monkeypatch.context() as patch:
        patch.setattr(taken_over, "_ORIGINALS", changed)
        with pytest.raises(ProgramError, match=r"its DataStreamWriter\.start has changed"):
            taken_over.take_over(ProgramRun(threading.Event().wait))
