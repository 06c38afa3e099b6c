"""The agent with checkpointLocations made by hand: when it snapshots a batch, and how it handles errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import ManualClock
from checkpointing.model.messages import (
    Channel,
    ChannelKind,
    CheckpointKind,
    SubtaskMetrics,
    TriggerCheckpoint,
    VertexKind,
)
from checkpointing.spark.agent import FIGURES_WAIT_S, STAGING_LIMIT_S, Acknowledged, CheckpointAgent
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.snapshot import DurableSubtask
from checkpointing.spark.staging import QueryFiles
from checkpointing.spark.task_metrics import BatchFigures, TaskFigures

PLAN = """
StateStoreSave [value#0], state info [ checkpoint = <unknown>, runId = x, opId = 0, ver = 0, numPartitions = 2], Update
+- StreamingRelation FileSource[/in], [value#0]
"""


@dataclass
class Query:
    """A query whose batches the test commits. After a request to end, the test decides when it ends."""

    name: str
    location: Path
    in_batch: bool = False
    ending: bool = False
    active: bool = True
    starts: int = 0
    inputs: tuple[Channel, ...] = ()
    rows: int = 0

    def progress(self) -> object:
        return self.rows

    @property
    def plan(self) -> QueryPlan:
        return query_plan(self.name, PLAN, Sink("noop", None), {})

    @property
    def files(self) -> QueryFiles:
        return QueryFiles(self.plan, self.location, None, self.inputs)

    def begin(self, batch: int) -> None:
        self._write(f"offsets/{batch}", f'v1\n{{}}\n{{"logOffset":{batch}}}')
        self._write(f"sources/0/{batch}")

    def commit(self, batch: int, size: int = 10) -> None:
        for partition in (0, 1):
            self._write(f"state/0/{partition}/{batch + 1}.delta", f"{self.name} {partition} {batch}".ljust(size))
        self._write(f"commits/{batch}")

    def run(self, *batches: int, size: int = 10) -> None:
        for batch in batches:
            self.begin(batch)
            self.commit(batch, size)

    def _write(self, path: str, text: str = "v1") -> None:
        (self.location / path).parent.mkdir(parents=True, exist_ok=True)
        (self.location / path).write_text(text)

    def start(self) -> None:
        self.active, self.ending = True, False
        self.starts += 1

    @property
    def is_active(self) -> bool:
        return self.active

    def doing(self) -> str:
        return "Processing new data"

    def end_after_batch(self) -> None:
        self.ending = True

    def has_ended(self) -> bool:
        if self.ending and not self.in_batch:
            self.active = False
        return not self.active


@dataclass
class Reports:
    acknowledged: list[tuple[int, DurableSubtask, SubtaskMetrics, int | None]] = field(default_factory=list)
    declined: list[tuple[int, str, str]] = field(default_factory=list)
    delays: list[tuple[int, str]] = field(default_factory=list)
    silences: list[int | None] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    known: dict[tuple[str, int], BatchFigures] = field(default_factory=dict)
    default: BatchFigures | None = field(default_factory=lambda: BatchFigures(0))

    def acknowledge(self, checkpoint_id: int, acknowledged: Acknowledged) -> None:
        self.acknowledged.append((checkpoint_id, acknowledged.durable, acknowledged.metrics, acknowledged.batch))
        self.channels += acknowledged.channels

    def delay(self, checkpoint_id: int, cause: str, silent_ms: int | None) -> None:
        self.delays.append((checkpoint_id, cause))
        self.silences.append(silent_ms)

    def decline(self, checkpoint_id: int, reason: str, cause: str) -> None:
        self.declined.append((checkpoint_id, reason, cause))

    def figures(self, query: str, batch: int) -> BatchFigures | None:
        return self.known.get((query, batch), self.default)

    def batches(self, checkpoint_id: int) -> set[int | None]:
        return {batch for each, _, _, batch in self.acknowledged if each == checkpoint_id}


class Bench:
    def __init__(self, root: Path, names: tuple[str, ...] = ("words",)) -> None:
        self.root = root
        self.clock = ManualClock()
        self.reports = Reports()
        self.queries = [Query(name, root / "queries" / name) for name in names]
        for query in self.queries:
            query._write("metadata", json.dumps({"id": query.name}))
            query._write("state/0/_metadata/metadata")
        self.agent = CheckpointAgent(self.queries, self.reports, root / "staging", self.clock)
        self.shared = root / "job" / "shared"
        self.shared.mkdir(parents=True)

    @property
    def query(self) -> Query:
        return self.queries[0]

    def trigger(self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT, **more: Any) -> Path:
        directory = self.root / "job" / f"chk-{checkpoint_id}"
        directory.mkdir()
        shared = None if kind.is_savepoint else str(self.shared)
        self.agent.trigger(TriggerCheckpoint("s", checkpoint_id, kind, 0, 1000, str(directory), shared, **more))
        return directory

    def until(self, eventually: Callable[..., object], condition: Callable[[], object]) -> None:
        def ticked() -> object:
            self.agent.tick()
            return condition()

        eventually("the agent", ticked, 60)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.agent.close()


def test_the_last_commit_is_snapshotted_at_once_without_a_running_batch(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, 1)
    bench.trigger(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    assert bench.reports.batches(1) == {1}
    assert all(metrics.start_delay == 0 for _, _, metrics, _ in bench.reports.acknowledged)
    assert not bench.agent.is_busy


def test_with_a_batch_in_flight_its_commit_is_awaited(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, 1)
    bench.query.begin(2)
    bench.trigger(1)
    bench.clock.advance(1.5)
    bench.agent.tick()
    assert bench.reports.acknowledged == []
    bench.query.commit(2)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    assert bench.reports.batches(1) == {2}
    assert all(metrics.start_delay == 1500 for _, _, metrics, _ in bench.reports.acknowledged)


def test_a_query_that_never_committed_is_waited_for(bench: Bench, eventually: Any) -> None:
    bench.trigger(1)
    bench.agent.tick()
    assert bench.agent.is_busy
    bench.query.run(0)
    bench.until(eventually, lambda: bench.reports.batches(1) == {0})


def test_the_figures_of_the_barriers_batch_are_reported(bench: Bench, eventually: Any) -> None:
    bench.query.begin(0)
    bench.trigger(1)
    bench.agent.tick()
    now = bench.clock.now_ms()
    task = TaskFigures(7, 0, 11, 99, first_output_at=now + 100, last_output_at=now + 103, finished_at=now + 400)
    bench.reports.known["words", 0] = BatchFigures(
        0, source_rows=(5,), output_rows=6, offsets_written_ms=1, commit_written_ms=2, tasks={(0, 1): task}
    )
    bench.clock.advance(0.5)
    bench.query.commit(0)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    by_owner = {(d.vertex.kind, d.subtask): metrics for _, d, metrics, _ in bench.reports.acknowledged}
    stateful = by_owner[VertexKind.STATEFUL, 1]
    assert (stateful.sync_duration, stateful.alignment_duration) == (7, 3)
    assert (stateful.processed_records, stateful.processed_data, stateful.state_size) == (11, 99, 10)
    assert by_owner[VertexKind.SOURCE, 0].processed_records == 5
    assert (by_owner[VertexKind.SINK, 0].processed_records, by_owner[VertexKind.SINK, 0].sync_duration) == (6, 2)


def test_missing_figures_delay_the_acknowledgement_for_a_limited_time(bench: Bench, eventually: Any) -> None:
    bench.reports.default = None
    bench.query.run(0)
    bench.trigger(1)
    bench.until(eventually, lambda: (bench.root / "job/chk-1/words/commits/0").exists())
    assert bench.reports.acknowledged == []
    bench.clock.advance(FIGURES_WAIT_S)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)


def test_only_new_files_count_as_checkpointed(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, size=5000)
    bench.trigger(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    bench.query.run(1, size=6000)
    bench.trigger(2)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 8)
    second = [m for c, d, m, _ in bench.reports.acknowledged if c == 2 and d.vertex.kind is VertexKind.STATEFUL]
    assert [m.state_size - m.checkpointed_size for m in second] == [5000, 5000]
    assert len(list(bench.shared.iterdir())) == 4


def test_a_savepoint_contains_all_its_files(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, size=5000)
    bench.trigger(1, CheckpointKind.SAVEPOINT)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    files = [file for _, durable, _, _ in bench.reports.acknowledged for file in durable.files]
    assert not any(file.shared for file in files)
    assert all((bench.root / "job" / "chk-1" / file.location).stat().st_size == file.size for file in files)
    assert list(bench.shared.iterdir()) == []


def test_an_aborted_checkpoint_leaves_nothing_that_others_do_not_need(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, size=5000)
    bench.trigger(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    bench.agent.completed(1)
    kept = set(bench.shared.iterdir())
    bench.reports.default = None  # holds the acknowledgements back
    bench.query.run(1, size=5000)
    directory = bench.trigger(2)
    bench.until(eventually, lambda: (directory / "words/commits/1").exists() and len(list(bench.shared.iterdir())) == 4)
    bench.agent.aborted(2)
    bench.until(eventually, lambda: set(bench.shared.iterdir()) == kept)
    eventually("staging is empty", lambda: list((bench.root / "staging").iterdir()) == [], 60)


@pytest.mark.parametrize("how", ["aborted", "unknown"])
def test_files_that_were_acknowledged_are_the_job_managers_to_remove(bench: Bench, eventually: Any, how: str) -> None:
    """The notice of a completion may be lost, and an aborted checkpoint may have been stored."""
    bench.query.run(0, size=5000)
    bench.trigger(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    if how == "aborted":
        bench.agent.aborted(1)
    else:
        bench.agent.only_pending([])
    eventually("staging is empty", lambda: list((bench.root / "staging").iterdir()) == [], 60)
    assert len(list(bench.shared.iterdir())) == 2


def test_a_state_file_that_is_missing_declines_the_checkpoint_with_its_name(bench: Bench) -> None:
    bench.query.run(0, 1, 2)
    (bench.query.location / "state/0/1/2.delta").unlink()
    bench.trigger(1)
    assert bench.reports.declined == [], "Spark's maintenance may have overtaken the listing"
    bench.clock.advance(STAGING_LIMIT_S)
    bench.agent.tick()
    [(checkpoint_id, reason, cause)] = bench.reports.declined
    assert (checkpoint_id, reason) == (1, "CHECKPOINT_ASYNC_EXCEPTION")
    assert "Batch 2 of query 'words' cannot be taken: state/0/1: the files of version 2" in cause
    assert not bench.agent.is_busy


def test_storage_that_fails_declines_the_checkpoint_with_the_cause(bench: Bench, eventually: Any) -> None:
    bench.query.run(0)
    (bench.root / "job" / "chk-1").mkdir()
    (bench.root / "job" / "chk-1" / "words").write_text("in the way")
    message = TriggerCheckpoint(
        "s", 1, CheckpointKind.CHECKPOINT, 0, 1000, str(bench.root / "job" / "chk-1"), str(bench.shared)
    )
    bench.agent.trigger(message)
    bench.until(eventually, lambda: bench.reports.declined)
    assert "cannot be written" in bench.reports.declined[0][2]


def test_a_synchronous_savepoint_ends_the_query_first(bench: Bench, eventually: Any) -> None:
    bench.query.run(0)
    bench.query.begin(1)
    bench.query.in_batch = True
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    for _ in range(3):
        bench.agent.tick()
    assert bench.query.active
    assert bench.reports.acknowledged == []
    bench.query.commit(1)
    bench.query.in_batch = False
    bench.until(eventually, lambda: bench.reports.batches(1) == {1})
    assert not bench.query.active
    assert bench.agent.has_ended_queries


def test_an_aborted_synchronous_savepoint_starts_the_query_again(bench: Bench, eventually: Any) -> None:
    bench.query.run(0)
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    bench.agent.aborted(1)
    assert bench.query.active
    assert bench.query.starts == 1
    assert not bench.agent.has_ended_queries


def test_an_abort_during_the_last_batch_waits_for_it_before_the_query_starts_again(bench: Bench) -> None:
    bench.query.run(0)
    bench.query.in_batch = True
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.agent.aborted(1)
    assert bench.query.starts == 0
    assert bench.agent.is_busy
    bench.query.in_batch = False
    bench.agent.tick()
    assert bench.query.starts == 1
    assert not bench.agent.is_busy


def test_a_checkpoint_after_a_synchronous_savepoint_is_declined(bench: Bench) -> None:
    bench.query.run(0)
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.trigger(2)
    assert bench.reports.declined[0][:2] == (2, "CHECKPOINT_DECLINED_TASK_CLOSING")


def test_checkpoint_unknown_to_the_job_manager_is_abandoned(bench: Bench) -> None:
    bench.query.run(0)
    bench.query.begin(1)
    bench.trigger(1)
    bench.trigger(2)
    bench.agent.only_pending([2])
    bench.query.commit(1)
    assert bench.agent.is_busy
    bench.agent.only_pending([])
    assert not bench.agent.is_busy


def test_each_query_of_a_job_is_snapshotted_at_its_batch_boundary(tmp_path: Path, eventually: Any) -> None:
    bench = Bench(tmp_path, ("slow", "fast"))
    slow, fast = bench.queries
    slow.run(0)
    slow.begin(1)
    fast.run(0, 1, 2, 3)
    bench.trigger(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    fast.run(4)
    slow.commit(1)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 8)
    batches = {durable.vertex.query: batch for _, durable, _, batch in bench.reports.acknowledged}
    assert batches == {"slow": 1, "fast": 3}
    bench.agent.close()


def chain(tmp_path: Path) -> tuple[Bench, Query, Query]:
    """Return two queries: `clean` writes files that `count` reads."""
    bench = Bench(tmp_path, ("clean", "count"))
    clean, count = bench.queries
    count.inputs = (Channel("clean", "count", ChannelKind.FILES, "/clean", 0),)
    return bench, clean, count


def cuts(bench: Bench) -> dict[str, int]:
    return {durable.vertex.query: batch for _, durable, _, batch in bench.reports.acknowledged}


def test_a_producer_is_snapshotted_after_its_current_batch_at_the_snapshot_of_its_consumer(
    tmp_path: Path, eventually: Any
) -> None:
    bench, clean, count = chain(tmp_path)
    clean.run(0, 1)
    count.run(0)
    count.begin(1)
    clean.begin(2)
    bench.trigger(1)
    clean.commit(2)
    clean.begin(3)  # batch 3's files may be in the sink's log already, and count's batch 1 may have read them
    bench.agent.tick()
    assert cuts(bench) == {}
    count.commit(1)
    bench.until(eventually, lambda: cuts(bench) == {"count": 1})
    clean.commit(3)
    clean.run(4)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 8)
    assert cuts(bench) == {"count": 1, "clean": 3}
    assert bench.reports.channels == [Channel("clean", "count", ChannelKind.FILES, "/clean", 0, '{"logOffset":1}')]
    bench.agent.close()


def test_a_synchronous_savepoint_ends_the_consumer_before_its_producer(tmp_path: Path, eventually: Any) -> None:
    bench, clean, count = chain(tmp_path)
    clean.run(0)
    count.run(0)
    clean.in_batch = count.in_batch = True
    clean.begin(1)
    count.begin(1)
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.agent.tick()
    assert (count.ending, clean.ending) == (True, False)
    count.commit(1)
    count.in_batch = False
    bench.until(eventually, lambda: clean.ending)
    assert not count.active
    clean.commit(1)
    clean.in_batch = False
    bench.until(eventually, lambda: cuts(bench) == {"count": 1, "clean": 1})
    bench.agent.aborted(1)
    assert (clean.starts, count.starts) == (1, 1)
    bench.agent.close()


def test_an_abort_before_the_snapshot_of_the_producer_does_not_stop_it(tmp_path: Path) -> None:
    bench, clean, count = chain(tmp_path)
    clean.run(0)
    count.run(0)
    count.in_batch = True
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.agent.aborted(1)
    count.in_batch = False
    bench.agent.tick()
    assert (clean.starts, count.starts) == (0, 1)
    assert clean.active
    bench.agent.close()


def test_wait_reason_is_reported_and_updated(tmp_path: Path, eventually: Any) -> None:
    bench, clean, count = chain(tmp_path)
    clean.run(0)
    clean.begin(1)
    bench.trigger(1)
    assert bench.reports.delays == [], "too early to be worth telling"
    bench.clock.advance(1)
    bench.agent.tick()
    behind = "Query 'clean' waits its turn behind 'count', which read its output."
    never = "Query 'count' has never ended a batch; Spark says: Processing new data."
    assert bench.reports.delays == [(1, f"{behind} {never}")]
    count.begin(0)
    bench.clock.advance(1)
    bench.agent.tick()
    stuck = "Query 'count' has not come to the end of batch 0; Spark says: Processing new data."
    assert bench.reports.delays[1:] == [(1, f"{behind} {stuck}")]
    bench.clock.advance(1)
    bench.agent.tick()
    assert len(bench.reports.delays) == 2
    count.commit(0)
    bench.reports.default = None  # holds the acknowledgements back
    bench.agent.tick()
    bench.clock.advance(1)
    bench.agent.tick()
    ends = "Query 'clean' has not come to the end of batch 1; Spark says: Processing new data."
    saves = "Query 'count' is cut at batch 0; 4 of its subtasks have yet to be saved."
    assert bench.reports.delays[2:] == [(1, f"{ends} {saves}")]
    bench.agent.close()


def test_a_computing_batch_is_distinguished_from_one_without_progress(bench: Bench) -> None:
    bench.query.run(0)
    bench.query.begin(1)
    bench.trigger(1)

    def second_passes(rows: int) -> list[int | None]:
        bench.query.rows = rows
        bench.clock.advance(1)
        bench.agent.tick()
        result, bench.reports.silences = bench.reports.silences, []
        return result

    assert [second_passes(rows) for rows in (5, 6, 6, 6, 7)] == [[0], [0], [], [], [0]]
    bench.agent.close()


def test_batch_without_progress_is_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ("words", "stuck"))
    for query in bench.queries:
        query.begin(0)
    bench.trigger(1)
    for rows in (1, 2, 3):
        bench.query.rows = rows
        bench.clock.advance(1)
        bench.agent.tick()
    assert bench.reports.silences == [0, 1000, 2000]
    bench.agent.close()


def test_missing_files_are_searched_in_a_later_batch(bench: Bench, eventually: Any) -> None:
    bench.query.run(0, 1, 2)
    lost = bench.query.location / "state/0/1/3.delta"
    content = lost.read_text()
    lost.unlink()
    bench.trigger(1)
    bench.agent.tick()
    assert bench.reports.declined == []
    bench.query.run(3)
    lost.write_text(content)
    bench.until(eventually, lambda: bench.reports.batches(1) == {3})


def test_a_batch_whose_files_spark_removed_counts_as_ended(bench: Bench, eventually: Any) -> None:
    bench.query.run(0)
    bench.query.begin(1)
    bench.trigger(1)
    bench.query.commit(1)
    bench.query.run(2)
    (bench.query.location / "offsets/1").rename(bench.query.location / "offsets/gone")
    (bench.query.location / "commits/1").unlink()
    assert bench.query.files.has_committed(1)
    assert not bench.query.files.has_committed(3)


def test_a_query_that_ended_by_itself_is_cut_at_its_last_commit(
    bench: Bench, eventually: Callable[..., object]
) -> None:
    """The query may have ended within a batch, which is then never committed."""
    bench.query.run(0, 1)
    bench.query.begin(2)
    bench.query.active = False

    bench.trigger(1, CheckpointKind.SAVEPOINT)

    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 4)
    assert bench.reports.batches(1) == {1}


def test_a_query_that_ended_without_a_commit_has_nothing_to_save(
    tmp_path: Path, eventually: Callable[..., object]
) -> None:
    bench = Bench(tmp_path, ("words", "idle"))
    words, idle = bench.queries
    words.run(0)
    words.active = idle.active = False

    bench.trigger(1, CheckpointKind.SAVEPOINT)

    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 8)
    batches = {durable.vertex.query: batch for _, durable, _, batch in bench.reports.acknowledged}
    assert batches == {"words": 0, "idle": None}
    assert not bench.agent.is_busy


def test_a_query_that_ended_by_itself_is_not_started_again_when_the_savepoint_of_a_stop_fails(
    tmp_path: Path, eventually: Callable[..., object]
) -> None:
    bench = Bench(tmp_path, ("words", "ended"))
    words, ended = bench.queries
    words.run(0)
    ended.run(0)
    ended.active = False
    bench.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    bench.until(eventually, lambda: len(bench.reports.acknowledged) == 8)

    bench.agent.aborted(1)
    bench.agent.tick()

    assert (words.starts, ended.starts) == (1, 0)
    assert not bench.agent.has_ended_queries
