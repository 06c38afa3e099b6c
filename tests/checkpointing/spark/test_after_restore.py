"""What happens to a query's output after a restore, depending on its sink, with real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.messages import AfterRestore
from checkpointing.sinks.files import FileSink
from checkpointing.sinks.postgres import PostgresSink
from checkpointing.spark import taken_over
from checkpointing.spark.job import plan_queries
from checkpointing.spark.program import ProgramError
from checkpointing.spark.program_run import ProgramRun
from checkpointing.spark.starting_state import NoState
from tests.checkpointing.spark.bench import LAYOUTS, Bench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _taken_over() -> Iterator[None]:
    """Take PySpark over during the test, as a driver does while its program runs."""
    taken_over.take_over(ProgramRun(list))
    yield
    taken_over.restore_methods()


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path, LAYOUTS["rocksdb format 2"])


SINKS: dict[str, tuple[Callable[[Any, Path], Any], AfterRestore]] = {
    "our files": (lambda w, at: w.foreachBatch(FileSink(at / "out")), AfterRestore.GOES_BACK),
    "our table": (lambda w, at: w.foreachBatch(PostgresSink("", "t")), AfterRestore.GOES_BACK),
    "Spark's files": (lambda w, at: w.format("json").option("path", str(at / "out")), AfterRestore.GOES_BACK),
    "memory": (lambda w, at: w.format("memory"), AfterRestore.REPLACED),
    "console": (lambda w, at: w.format("console"), AfterRestore.REPLACED),
    "noop": (lambda w, at: w.format("noop"), AfterRestore.REPLACED),
    "a function": (lambda w, at: w.foreachBatch(lambda frame, batch: None), AfterRestore.WRITTEN_AGAIN),
    "foreach": (lambda w, at: w.foreach(print), AfterRestore.WRITTEN_AGAIN),
    "a connector": (lambda w, at: w.format("kafka"), AfterRestore.WRITTEN_AGAIN),
}


def planned(bench: Bench, writer: Any) -> Any:
    return plan_queries([writer], WorkDirectory(bench.root), NoState("job"), {})[0]


@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_has_a_class(sink: str, bench: Bench) -> None:
    made, expected = SINKS[sink]
    writer = made(bench.lines().writeStream.queryName("words"), bench.root)
    assert planned(bench, writer).sink.after_restore is expected


def test_complete_output_replaces_all_rows(bench: Bench) -> None:
    counts = bench.lines().groupBy("value").count().writeStream.foreachBatch(lambda frame, batch: None)
    assert planned(bench, counts.outputMode("update")).sink.after_restore is AfterRestore.WRITTEN_AGAIN
    assert planned(bench, counts.outputMode("complete")).sink.after_restore is AfterRestore.REPLACED


def test_files_of_an_at_least_once_sink_are_kept_and_written_again(bench: Bench) -> None:
    writer = bench.lines().writeStream.format("json").option("path", str(bench.root / "out"))
    mode = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
    (query,) = plan_queries([writer], WorkDirectory(bench.root), NoState("job"), mode)
    assert query.writes_again


# --- waymark.batch-numbers -------------------------------------------------------------------------------------------


def test_a_function_that_replaces_the_rows_of_a_number_keeps_the_numbers(bench: Bench) -> None:
    rows: dict[int, list[str]] = {}

    def replaces(frame: Any, batch: int) -> None:
        rows[batch] = [row["value"] for row in frame.collect()]

    def writing(name: str) -> Any:
        writer = bench.lines().writeStream.queryName("words").foreachBatch(replaces)
        work = WorkDirectory(bench.root / name)
        return plan_queries([writer.option("waymark.batch-numbers", "repeat")], work, NoState("job"), {})[0]

    first = run(bench, writing("first"), 3)
    checkpoint = bench.snapshot(first, batch=1)
    first.stop()
    again = writing("again")
    assert bench.restore(checkpoint, again).number == 1
    run(bench, again, 1).stop()
    assert max(rows) < 10
    assert sorted(word for batch in rows.values() for word in batch) == sorted(bench.expected.elements())


def run(bench: Bench, query: Any, batches: int) -> Any:
    from checkpointing.spark.running_query import RunningQuery

    running = RunningQuery(query)
    running.start()
    for _ in range(batches):
        bench.feed()
        bench.run_all(running)
    return running


def test_the_option_names_the_allowed_values(bench: Bench) -> None:
    option = "waymark.batch-numbers"
    writer = bench.lines().writeStream.queryName("words")
    with pytest.raises(ProgramError, match="'never' of query 'words' is not allowed; only repeat is"):
        planned(bench, writer.foreachBatch(lambda frame, batch: None).option(option, "never"))
    to_files = bench.lines().writeStream.queryName("words").format("json").option("path", str(bench.root / "out"))
    with pytest.raises(ProgramError, match="'repeat' is not possible for query 'words', which writes to json"):
        planned(bench, to_files.option(option, "repeat"))
