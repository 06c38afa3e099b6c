"""What a file sink's readers see when a query starts again from older state or from none, with real Spark."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.sinks.output_directory import SinkDirectoryTaken
from checkpointing.spark.restore import Snapshot, SnapshotDamaged, restore_output, restore_query
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.starting_state import NoState, SnapshotState
from tests.checkpointing.spark.bench import LAYOUTS, Bench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    return spark


class FileSink(Bench):
    """Lines into a file sink, cut into batches in another way each time."""

    @property
    def output(self) -> Path:
        return self.root / "out"

    def writing(self, name: str, *, files_per_batch: int = 1) -> PlannedQuery:
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", str(files_per_batch))
        writer = lines.load(str(self.input)).writeStream.format("json").option("path", str(self.output))
        return self.planned(writer, self.root / name)

    def run(self, planned: PlannedQuery, batches: int) -> RunningQuery:
        query = RunningQuery(planned)
        query.start()
        for _ in range(batches):
            self.feed()
        self.run_all(query)
        return query

    def listed(self) -> Counter[str]:
        """What readers see who do not know the log: every data file below the output that is not hidden."""
        lines = (line for path in self.data_files() for line in path.read_text().splitlines())
        return Counter(json.loads(line)["value"] for line in lines)

    def data_files(self) -> list[Path]:
        paths = (path.relative_to(self.output) for path in self.output.rglob("*.json"))
        return [self.output / path for path in paths if not any(part.startswith((".", "_")) for part in path.parts)]

    def restored(self, checkpoint: CompletedCheckpoint, name: str, **more: Any) -> RunningQuery:
        """From the checkpoint, its batches cut in another way, run on over all input."""
        planned = self.writing(name, files_per_batch=2)
        restore_query(Snapshot(checkpoint), "words", planned.plan.vertices, planned.location)
        restore_output(Snapshot(checkpoint), "words", **more)
        return self.run(planned, 1)

    def rows(self) -> Counter[str]:
        return Counter(row["value"] for row in self.spark.read.json(str(self.output)).collect())


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path, LAYOUTS["rocksdb format 2"])


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(2, id="between two compactions", marks=pytest.mark.nightly),
        pytest.param(3, id="at a compaction"),
    ],
)
def test_at_least_once_rows_stay_visible_and_none_is_lost(bench: FileSink, batches: int) -> None:
    first = bench.run(bench.writing("first"), batches)
    checkpoint = bench.snapshot(first)
    for _ in range(5):
        bench.feed()
    bench.run_all(first)
    first.stop()
    seen = bench.rows()
    again = bench.writing("again", files_per_batch=2)
    restore_query(Snapshot(checkpoint), "words", again.plan.vertices, again.location)
    restore_output(Snapshot(checkpoint), "words", keep_output=True)
    assert bench.rows() == seen, "a restore took rows from the readers"
    query = bench.run(again, 1)
    query.stop()
    found = bench.rows()
    assert all(found[word] >= count for word, count in bench.expected.items()), "rows were lost"
    assert found.total() > bench.expected.total(), "nothing was written twice: this test shows nothing"


def test_what_an_earlier_attempt_wrote_hides_nothing_of_one_that_starts_without_state(bench: FileSink) -> None:
    first = bench.writing("first")
    NoState("job").put_output_back(first)
    bench.run(first, 3).stop()
    again = bench.writing("again", files_per_batch=2)
    NoState("job").put_output_back(again)
    bench.run(again, 1).stop()
    assert bench.rows() == bench.listed() == bench.expected


def test_a_query_without_state_is_refused_a_directory_that_another_job_has_written_to(bench: FileSink) -> None:
    bench.run(bench.writing("before"), 2).stop()
    seen = bench.rows()
    for starts in (NoState("job").build, NoState("job").put_output_back):
        with pytest.raises(SinkDirectoryTaken, match=rf"^{bench.output} holds the output of another job or query"):
            starts(bench.writing("first"))
    assert bench.rows() == bench.listed() == seen


def test_a_renamed_query_is_refused_the_directory_of_its_former_name(bench: FileSink) -> None:
    """Its batches count from 0: the sink would skip as many as the log has."""
    first = bench.run(bench.writing("first"), 2)
    state = bench.snapshot(first, 1)
    first.stop()
    renamed = replace(bench.writing("again"), plan=replace(bench.writing("again").plan, query="renamed"))
    restored = SnapshotState("job", Snapshot(state), bench.root / "none", True, False, False, False)
    with pytest.raises(SinkDirectoryTaken, match="give the query another directory"):
        restored.build(renamed)


def test_an_empty_log_of_another_job_is_taken_over(bench: FileSink) -> None:
    """Spark makes the directory of the log before the first batch."""
    (bench.output / "_spark_metadata").mkdir(parents=True)
    first = bench.writing("first")
    NoState("job").put_output_back(first)
    bench.run(first, 2).stop()
    again = bench.writing("again", files_per_batch=2)
    NoState("job").put_output_back(again)
    bench.run(again, 1).stop()
    assert bench.rows() == bench.listed() == bench.expected


def test_who_lists_the_directory_sees_each_row_once_too_whatever_is_restored(bench: FileSink) -> None:
    """Back to an older state, and then to the newer one that was left behind: its files come back."""
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


def test_what_a_batch_left_that_never_ended_goes_only_when_nobody_can_be_writing_it(bench: FileSink) -> None:
    first = bench.run(bench.writing("first"), 2)
    first.stop()
    written = bench.data_files()[0]

    def unnamed(number: int, seconds: int) -> Path:
        """A file that a task was writing when its driver died, so long after the checkpoint."""
        path = written.with_name(f"part-0000{number}-{uuid.uuid4()}-c000.json")
        path.write_text(json.dumps({"value": "half"}) + "\n")
        os.utime(path, (1000 + seconds,) * 2)
        return path

    checkpoint = replace(bench.snapshot(first), trigger_timestamp=1_000_000)
    older, newer = unnamed(0, -1), unnamed(1, 1)
    restore_output(Snapshot(checkpoint), "words")
    assert newer.exists(), "somebody may still be writing"
    restore_output(Snapshot(checkpoint), "words", writers_are_gone=True, keep_output=True)
    assert newer.exists(), "at least once leaves what is there"
    restore_output(Snapshot(checkpoint), "words", writers_are_gone=True)
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
    moves = len(bench.data_files())
    for last in range(moves + 2):
        left = iter(range(last))

        def dies(*paths: Path, plain: Any = Path.rename, left: Any = left) -> Any:
            if next(left, None) is None:
                raise OSError("the machine is gone")
            return plain(*paths)

        with monkeypatch.context() as patched, contextlib.suppress(SnapshotDamaged):
            patched.setattr(Path, "rename", dies)
            restore_output(Snapshot(checkpoint), "words")
    bench.restored(checkpoint, "second").stop()
    assert bench.rows() == bench.listed() == bench.expected
