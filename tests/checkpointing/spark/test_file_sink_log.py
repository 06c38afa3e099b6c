"""The log of Spark's file sink after restores, on two Hadoop file systems, with real Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from checkpointing.checkpoint_location.local_recovery import LocalState, LocalStateUnusable
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.sinks.output_directory import SinkDirectoryTaken
from checkpointing.spark.restore import SnapshotDamaged
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.sink_output import COMPACT_INTERVAL, SinkOutput
from checkpointing.spark.starting_state import FormerAttempt, NoState, build_queries
from tests.checkpointing.spark.bench import LAYOUTS, RANGES
from tests.checkpointing.spark.file_sink_bench import FileSink
from tests.profile import IS_CI

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _compacted_often(spark: Any) -> None:
    spark.conf.set(COMPACT_INTERVAL, "3")


@pytest.fixture(params=["viewfs", pytest.param("file", marks=pytest.mark.nightly)])
def bench(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> FileSink:
    made = FileSink(spark, tmp_path, LAYOUTS["rocksdb format 2"])
    return made.on_viewfs() if request.param == "viewfs" else made


@pytest.fixture
def viewfs(spark: Any, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path, LAYOUTS["rocksdb format 2"]).on_viewfs()


def two_states(bench: FileSink) -> tuple[CompletedCheckpoint, CompletedCheckpoint]:
    """Write six batches. Return the snapshots after two batches and after five."""
    first = bench.run(bench.writing("first"), 2)
    older = bench.snapshot(first, 1)
    feed(bench, first, 3)
    newer = bench.snapshot(first, 2)
    feed(bench, first, 1)
    first.stop()
    return older, newer


def feed(bench: FileSink, query: RunningQuery, batches: int) -> None:
    for _ in range(batches):
        bench.feed()
        bench.run_all(query)


def log_of(bench: FileSink) -> list[str]:
    return sorted(path.name for path in (bench.output / "_spark_metadata").glob("[!.]*"))


@pytest.mark.nightly
def test_each_row_is_there_once_after_restores_back_and_forward(bench: FileSink) -> None:
    older, newer = two_states(bench)
    states = (older, newer) if IS_CI else (older, newer, older, newer)
    for number, state in enumerate(states):
        query = bench.restored(state, f"restored-{number}")
        assert bench.rows() == bench.expected
        feed(bench, query, 4)  # until after the next compaction
        query.stop()
        assert bench.rows() == bench.expected
    again = bench.run(query.planned, 1)  # start at the same location, as after a crash
    again.stop()
    assert bench.rows() == bench.expected
    taken = bench.snapshot(again, 3)
    bench.restored(taken, "last").stop()
    assert bench.rows() == bench.expected


@pytest.mark.nightly
@pytest.mark.parametrize("interval", [1, 4, 10, 50])
def test_the_log_is_compacted_at_the_current_interval_of_the_job(bench: FileSink, interval: int) -> None:
    older, _ = two_states(bench)
    bench.spark.conf.set(COMPACT_INTERVAL, str(interval))
    query = bench.restored(older, "again")
    restored = int(log_of(bench)[-1].removesuffix(".compact")) // interval
    feed(bench, query, interval + 1)
    query.stop()
    assert bench.rows() == bench.expected
    compacted = sorted(int(name.removesuffix(".compact")) for name in log_of(bench) if name.endswith(".compact"))
    assert compacted[-1] - compacted[-2] == interval
    assert compacted[-1] // interval >= restored


@pytest.mark.nightly
def test_a_reader_between_the_two_files_fails_or_sees_the_restored_rows(
    bench: FileSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = two_states(bench)
    seen: list[str] = []
    plain = SinkOutput._rename

    def reading(output: SinkOutput, source: Any, target: Any) -> None:
        plain(output, source, target)
        try:
            seen.append(str(bench.rows().total()))
        except (Py4JJavaError, PySparkException) as error:
            seen.append(str(error))

    for state, name in ((newer, "forward"), (older, "back")):
        seen.clear()
        with monkeypatch.context() as patched:
            patched.setattr(SinkOutput, "_rename", reading)
            bench.restore(state, bench.writing(name))
        restored = str(200 * (state.batches["words"] + 1))
        assert seen[0] == restored or "doesn't exist" in seen[0]
        assert seen[1:] == [restored]


def test_a_log_that_another_job_continues_is_refused(bench: FileSink) -> None:
    """The foreign entry has a batch number beyond the range of this job."""
    older, _ = two_states(bench)
    foreign = bench.output / "_spark_metadata" / str(next(RANGES).end + 30_000)
    foreign.write_text("v1\n")
    seen = log_of(bench)
    with pytest.raises(SinkDirectoryTaken, match=f"by another job: its _spark_metadata has batch {foreign.name}"):
        bench.restore(older, bench.writing("again"))
    assert log_of(bench) == seen


def elsewhere(bench: FileSink) -> str:
    return f"{bench.at or bench.output}-2"


@pytest.mark.nightly
def test_a_query_that_moves_to_an_empty_directory_does_not_change_the_former_one(bench: FileSink) -> None:
    """A second job may start from the state while the first job continues."""
    older, newer = two_states(bench)
    before, log = bench.rows(), log_of(bench)
    moved = bench.writing("moved", output=elsewhere(bench))
    bench.restore(older, moved)
    query = bench.run(moved, 5)
    taken = bench.snapshot(query, 3)
    feed(bench, query, 1)
    query.stop()
    assert (bench.rows(), log_of(bench)) == (before, log)

    def rows_elsewhere() -> int:
        return bench.spark.read.json(elsewhere(bench)).count()

    in_two_batches = 2 * 200
    assert rows_elsewhere() == bench.expected.total() - in_two_batches
    for number, state in enumerate((taken, newer)):  # first a state of the new directory, then one of the old directory
        again = bench.writing(f"again-{number}", output=elsewhere(bench))
        after = bench.restore(state, again).restored + 1
        bench.run(again, 1).stop()
        written_elsewhere = 5 * 200 if state is newer else in_two_batches
        assert after > 0
        assert rows_elsewhere() == bench.expected.total() - written_elsewhere


@pytest.mark.nightly
def test_a_restored_query_is_refused_a_directory_that_another_job_has_written_to(bench: FileSink) -> None:
    older, _ = two_states(bench)
    other = bench.writing("other", output=elsewhere(bench))
    bench.run(other, 2).stop()
    seen = bench.rows()
    with pytest.raises(SinkDirectoryTaken, match=r"out-2 holds the output of another job or query"):
        bench.restore(older, bench.writing("moved", output=elsewhere(bench)))
    assert bench.rows() == seen


@pytest.mark.nightly
def test_at_least_once_nothing_disappears(viewfs: FileSink) -> None:
    older, _ = two_states(viewfs)
    seen = viewfs.rows()
    again = viewfs.writing("again")
    viewfs.restore(older, again, keep_output=True)
    assert viewfs.rows() == seen
    viewfs.run(again, 1).stop()
    rows = viewfs.rows()
    assert all(rows[word] >= count for word, count in viewfs.expected.items())


def test_a_query_restarted_without_state_begins_a_new_log(viewfs: FileSink) -> None:
    for name in ("first", "again"):
        query = viewfs.writing(name)
        NoState("job").check_output(query, None)
        NoState("job").put_output_back(query, None)
        viewfs.run(query, 2).stop()
        assert viewfs.rows() == viewfs.expected
    with pytest.raises(SinkDirectoryTaken, match="holds the output of job job"):
        NoState("other").check_output(query, None)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(1, id="the log knows the batch"),
        pytest.param(4, id="compacted beyond it", marks=pytest.mark.nightly),
    ],
)
def test_a_snapshot_without_the_sinks_log_continues_in_the_log_that_is_there(bench: FileSink, batches: int) -> None:
    """A snapshot of an imported location does not have the sink's log."""
    first = bench.run(bench.writing("first"), 1)
    feed(bench, first, 1)
    taken = without_log(bench.snapshot(first, 1))
    feed(bench, first, batches)
    first.stop()
    bench.restored(replace(taken, imported_from=("file:/location",)), "again").stop()
    rows = bench.rows()
    assert all(rows[word] >= count for word, count in bench.expected.items())
    if batches == 1:
        assert rows == bench.expected


def without_log(checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
    def kept(subtask: Any) -> Any:
        return replace(subtask, files=tuple(file for file in subtask.files if not file.path.startswith("sink:")))

    operators = (replace(each, subtasks=tuple(map(kept, each.subtasks))) for each in checkpoint.operators)
    return replace(checkpoint, operators=tuple(operators))


@pytest.mark.nightly
def test_files_of_the_log_that_spark_removes_while_it_is_read_are_not_missed(
    viewfs: FileSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = viewfs.run(viewfs.writing("first"), 1)
    feed(viewfs, first, 4)
    first.stop()
    output, removed = first.planned.output, []
    assert output is not None
    plain = output.copy_of

    def removing(name: str) -> Path:
        if not removed:
            path = viewfs.output / "_spark_metadata" / name
            removed.append(path.rename(viewfs.root / name))
            (viewfs.output / "_spark_metadata" / f".{name}.crc").unlink()
        return plain(name)

    monkeypatch.setattr(output, "copy_of", removing)
    assert len(output.all_entries()) == 5
    assert removed


@pytest.mark.nightly
def test_an_unreadable_log_is_named(viewfs: FileSink) -> None:
    older, _ = two_states(viewfs)
    query = viewfs.writing("again")
    newest = max((viewfs.output / "_spark_metadata").glob("[!.]*"))
    newest.with_name(f".{newest.name}.crc").unlink()
    newest.write_text("v7\n{}")
    with pytest.raises(
        SnapshotDamaged, match=rf"_spark_metadata/{newest.name} has format 'v7'; only 'v1' is supported"
    ):
        viewfs.restore(older, query, keep_output=True)
    with pytest.raises(OSError, match="No FileSystem for scheme"):
        _ = viewfs.writing("nowhere", output="nosuch://there/out").output


# --- local recovery --------------------------------------------------------------------------------------------------


def continued(bench: FileSink, name: str, **more: Any) -> RunningQuery:
    """Continue the query from the files that the previous attempt left at the bench's root."""
    planned = bench.writing(name)
    state = FormerAttempt(LocalState.read(bench.root), bench.root / "none", keep_output=False, writers_are_gone=True)
    build_queries(state, bench.spark, bench.root, [planned], **more)
    return RunningQuery(planned)


@pytest.fixture
def left_behind(bench: FileSink, monkeypatch: pytest.MonkeyPatch) -> Callable[[], RunningQuery]:
    """Return a function that restores a query, where `LocalState` finds it, and stops it after two more batches."""

    def run() -> RunningQuery:
        monkeypatch.setattr("checkpointing.spark.starting_state.QUERIES", ".")
        older, _ = two_states(bench)
        query = bench.restored(older, "restored")
        feed(bench, query, 1)
        query.stop()
        return query

    return run


@pytest.mark.nightly
def test_a_restored_query_is_continued_where_it_was_with_its_numbers(
    bench: FileSink, left_behind: Callable[[], RunningQuery]
) -> None:
    last = left_behind().files.last_commit()
    query = continued(bench, "continued")
    assert query.files.last_commit() == last
    bench.run(query.planned, 1).stop()
    assert bench.rows() == bench.expected


@pytest.mark.nightly
def test_a_query_at_the_end_of_its_range_is_continued_in_another_one(
    bench: FileSink, left_behind: Callable[[], RunningQuery]
) -> None:
    left_behind()
    numbers = next(RANGES)
    query = continued(bench, "continued", numbers=numbers)
    last = query.files.last_commit()
    assert last is not None
    assert numbers.first < last < numbers.end
    again = bench.run(query.planned, 4)
    again.stop()
    assert bench.rows() == bench.expected
    for name in (f"{again.files.last_commit()}", f".{again.files.last_commit()}.crc"):
        (again.planned.location / "commits" / name).unlink()
    in_flight = continued(bench, "in flight", numbers=next(RANGES))
    assert in_flight.files.next_boundary() == last + 4, "sinks may know the batch by its number"
    bench.run(in_flight.planned, 1).stop()
    assert bench.rows() == bench.expected


@pytest.mark.nightly
def test_a_log_that_is_ahead_of_the_remaining_state_is_detected(
    bench: FileSink, left_behind: Callable[[], RunningQuery]
) -> None:
    last = left_behind().files.last_commit()
    assert last is not None
    (bench.output / "_spark_metadata" / f"{last + 3}").write_text("v1\n")
    with pytest.raises(LocalStateUnusable, match=f"_spark_metadata ends with batch {last + 3}, but the newest"):
        continued(bench, "continued")
