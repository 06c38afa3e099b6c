"""What readers of a file sink see after a query starts from older state or without state, with real Spark."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest

from checkpointing.sinks.output_directory import SinkDirectoryTaken
from checkpointing.spark import file_sink
from checkpointing.spark.restore import Snapshot, SnapshotDamaged
from checkpointing.spark.sink_output import SinkOutput
from checkpointing.spark.starting_state import NoState, SnapshotState
from tests.checkpointing.spark.bench import LAYOUTS
from tests.checkpointing.spark.file_sink_bench import FileSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    return spark


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path, LAYOUTS["rocksdb format 2"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(2, id="between two compactions", marks=pytest.mark.nightly),
        pytest.param(3, id="at a compaction"),
    ],
)
def test_at_least_once_rows_remain_visible_and_none_is_lost(bench: FileSink, batches: int) -> None:
    first = bench.run(bench.writing("first"), batches)
    checkpoint = bench.snapshot(first)
    for _ in range(5):
        bench.feed()
    bench.run_all(first)
    first.stop()
    seen = bench.rows()
    again = bench.writing("again", files_per_batch=2)
    bench.restore(checkpoint, again, keep_output=True)
    assert bench.rows() == seen, "a restore took rows from the readers"
    query = bench.run(again, 1)
    query.stop()
    found = bench.rows()
    assert all(found[word] >= count for word, count in bench.expected.items()), "rows were lost"
    assert found.total() > bench.expected.total(), "nothing was written twice: this test shows nothing"


@pytest.mark.nightly
def test_earlier_output_does_not_hide_rows_of_an_empty_start(bench: FileSink) -> None:
    first = bench.writing("first")
    NoState("job").put_output_back(first, None)
    bench.run(first, 3).stop()
    again = bench.writing("again", files_per_batch=2)
    NoState("job").put_output_back(again, None)
    bench.run(again, 1).stop()
    assert bench.rows() == bench.listed() == bench.expected


def test_a_query_without_state_is_refused_a_directory_that_another_job_has_written_to(bench: FileSink) -> None:
    bench.run(bench.writing("before"), 2).stop()
    seen = bench.rows()
    for starts in (NoState("job").check_output, NoState("job").put_output_back):
        with pytest.raises(SinkDirectoryTaken, match=rf"^file:{bench.output} holds the output of another job or query"):
            starts(bench.writing("first"), None)
    assert bench.rows() == bench.listed() == seen


def test_output_refusal_explains_how_to_run_the_other_job_again(bench: FileSink) -> None:
    first = bench.writing("first")
    NoState("a" * 32).put_output_back(first, None)
    bench.run(first, 1).stop()
    with pytest.raises(SinkDirectoryTaken, match=f"output of job {'a' * 32}: .* manage.py job run-again {'a' * 32}"):
        NoState("b" * 32).check_output(bench.writing("second"), None)


def test_a_query_is_refused_the_output_that_a_job_continues_which_has_not_ended(bench: FileSink) -> None:
    first = bench.run(bench.writing("first"), 2)
    state = bench.snapshot(first, 1)
    with pytest.raises(SinkDirectoryTaken, match=f"is written by job {state.job_id}, which has not ended"):
        bench.restored(state, "second", job_id="second", other_jobs=["unrelated", state.job_id])
    bench.feed()
    bench.run_all(first)
    first.stop()
    assert bench.rows() == bench.listed() == bench.expected, "the first job lost rows"

    second = bench.restored(state, "second again", job_id="second", other_jobs=["unrelated"])
    with pytest.raises(SinkDirectoryTaken, match="is written by job second, which has not ended"):
        bench.restored(state, "third", job_id="third", other_jobs=["unrelated", "second"])
    bench.feed()
    bench.run_all(second)
    second.stop()
    assert bench.rows() == bench.listed() == bench.expected, "the second job lost rows"


def test_a_renamed_query_is_refused_the_directory_of_its_former_name(bench: FileSink) -> None:
    """The renamed query's batches start at 0, so the sink would skip those that are in its log."""
    first = bench.run(bench.writing("first"), 2)
    state = bench.snapshot(first, 1)
    first.stop()
    renamed = replace(bench.writing("again"), plan=replace(bench.writing("again").plan, query="renamed"))
    restored = SnapshotState("job", Snapshot(state), bench.root / "none", True, False, False, False)
    with pytest.raises(SinkDirectoryTaken, match="give the query another directory"):
        restored.check_output(renamed, None)


@pytest.mark.nightly
def test_an_empty_log_of_another_job_is_taken_over(bench: FileSink) -> None:
    """Spark creates the directory of the log before the first batch."""
    (bench.output / "_spark_metadata").mkdir(parents=True)
    first = bench.writing("first")
    NoState("job").put_output_back(first, None)
    bench.run(first, 2).stop()
    again = bench.writing("again", files_per_batch=2)
    NoState("job").put_output_back(again, None)
    bench.run(again, 1).stop()
    assert bench.rows() == bench.listed() == bench.expected


@pytest.mark.nightly
def test_directory_listing_has_each_row_once_after_any_restore(bench: FileSink) -> None:
    """Restore an older state, and then the newer one. The files of the newer state return."""
    first = bench.run(bench.writing("first"), 2)
    older = bench.snapshot(first, 1)
    for _ in range(3):
        bench.feed()
    bench.run_all(first)
    newer = bench.snapshot(first, 2)
    first.stop()
    (bench.output / "README.json").write_text(json.dumps({"value": "no row"}) + "\n")
    bench.restored(older, "second").stop()
    bench.expected["no row"] += 1
    assert bench.listed() == bench.expected
    bench.restored(newer, "third").stop()
    assert bench.listed() == bench.expected
    assert bench.rows() + Counter(["no row"]) == bench.expected


def test_unfinished_output_is_removed_only_without_a_possible_writer(bench: FileSink) -> None:
    first = bench.run(bench.writing("first"), 2)
    first.stop()
    written = bench.data_files()[0]

    def unnamed(number: int, seconds: int) -> Path:
        """Write the file of a task whose driver died `seconds` after the checkpoint."""
        path = written.with_name(f"part-0000{number}-{uuid.uuid4()}-c000.json")
        path.write_text(json.dumps({"value": "half"}) + "\n")
        os.utime(path, (1000 + seconds,) * 2)
        return path

    checkpoint = replace(bench.snapshot(first), trigger_timestamp=1_000_000)
    older, newer = unnamed(0, -1), unnamed(1, 1)
    bench.restore(checkpoint, bench.writing("second"))
    assert newer.exists(), "somebody may still be writing"
    bench.restore(checkpoint, bench.writing("third"), writers_are_gone=True, keep_output=True)
    assert newer.exists(), "at least once leaves what is there"
    bench.restore(checkpoint, bench.writing("fourth"), writers_are_gone=True)
    assert not newer.exists()
    assert (bench.output / ".waymark" / "abandoned" / newer.name).exists(), "moved, not deleted"
    assert older.exists(), "it was there when the state was made"
    assert bench.rows() == bench.expected


def test_a_restore_that_dies_half_way_is_done_again(bench: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.run(bench.writing("first"), 2)
    checkpoint = bench.snapshot(first)
    for _ in range(3):
        bench.feed()
    bench.run_all(first)
    first.stop()
    steps = 3 + 2  # three files of abandoned batches are moved, and two files are added to the log
    for last in range(steps):
        left = iter(range(last))

        def dies(step: Any, *arguments: Any, left: Any = left) -> Any:
            if next(left, None) is None:
                raise OSError("the machine is gone")
            return step(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(file_sink, "_move", partial(dies, file_sink._move))
            patched.setattr(SinkOutput, "_rename", partialmethod(partial(dies, SinkOutput._rename)))
            with pytest.raises(SnapshotDamaged, match="the machine is gone"):
                bench.restore(checkpoint, bench.writing(f"again-{last}"))
    bench.restored(checkpoint, "second").stop()
    assert bench.rows() == bench.listed() == bench.expected
