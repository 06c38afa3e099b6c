"""Queries with Spark's continuous trigger, with real Spark: each epoch can be restored, at least once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.messages import CheckpointKind, DriverState, Heartbeat, VertexKind
from checkpointing.spark.job import plan_queries
from checkpointing.spark.program import ProgramError
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.staging import QueryFiles
from checkpointing.spark.starting_state import NoState
from tests.checkpointing.spark import taking

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 2
MODE = "execution.checkpointing.mode"


@dataclass(frozen=True)
class Numbers:
    """A query that counts up from 0, with even and odd numbers in separate partitions.

    Each number that a run sees becomes a property of the JVM.

    Spark's sinks for a continuous query cannot be read, and its Python workers get their rows only in large lots.
    """

    spark: Any
    root: Path

    def writer(self, run: str, fails_at: int) -> Any:
        rate = self.spark.readStream.format("rate").option("rowsPerSecond", 60).option("numPartitions", PARTITIONS)
        seen = f"concat('{self.root}/{run}/', value)"
        frame = rate.load().selectExpr(
            f"IF(value < {fails_at}, value, raise_error('poisoned')) AS value",
            f"java_method('java.lang.System', 'setProperty', {seen}, 'seen') AS seen",
        )
        return frame.writeStream.queryName("numbers").format("noop").trigger(continuous="300 milliseconds")

    def planned(self, run: str, configuration: dict[str, str] | None = None, *, fails_at: int = 10**9) -> PlannedQuery:
        writers = [self.writer(run, fails_at)]
        [planned] = plan_queries(writers, WorkDirectory(self.root / run), NoState("job"), configuration or {})
        return planned

    def start(self, run: str) -> RunningQuery:
        query = RunningQuery(self.planned(run))
        query.start()
        return query

    def seen(self, run: str) -> set[int]:
        names = list(self.spark._jvm.java.lang.System.getProperties().stringPropertyNames())
        prefix = f"{self.root}/{run}/"
        return {int(name.removeprefix(prefix)) for name in names if name.startswith(prefix)}


def epochs_pass(query: RunningQuery, count: int, eventually: Callable[..., object]) -> None:
    goal = (query.files.last_commit() or 0) + count
    eventually(f"epoch {goal}", lambda: (query.files.last_commit() or 0) >= goal)


def read_up_to(query: RunningQuery, epoch: int | None = None) -> dict[int, int]:
    """Return the last number of an epoch by partition, negative before the first number.

    Without an epoch, use the newest one.
    """
    epoch = query.files.last_commit() if epoch is None else epoch
    if epoch is None:
        return {}
    position = json.loads(query.files.read(f"offsets/{epoch}").decode().splitlines()[-1])
    return {int(partition): offset["value"] for partition, offset in position.items()}


def numbers_come(query: RunningQuery, eventually: Callable[..., object]) -> None:
    """Wait for an epoch with numbers. The first epochs may have none, because the tasks need time to begin."""
    began = read_up_to(query)
    eventually(
        "an epoch with numbers",
        lambda: all(n > max(0, began.get(p, 0)) for p, n in (read_up_to(query) or began).items()),
    )


def commits_seen_at(call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Return the newest epochs that the product found during `call`. A read before it could be out of date."""
    seen: list[int | None] = []
    last_commit = QueryFiles.last_commit

    def noted(files: QueryFiles) -> int | None:
        seen.append(last_commit(files))
        return seen[-1]

    with monkeypatch.context() as patched:
        patched.setattr(QueryFiles, "last_commit", noted)
        call()
    return seen


def assert_nothing_is_missing(seen: set[int]) -> None:
    for partition in range(PARTITIONS):
        mine = [number for number in seen if number % PARTITIONS == partition]
        assert sorted(mine) == list(range(partition, max(mine) + 1, PARTITIONS))


def test_a_checkpoint_of_a_running_query_is_an_epoch_that_it_is_restored_from(
    spark: Any, tmp_path: Path, eventually: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = Numbers(spark, tmp_path)
    first = numbers.start("first")
    assert [vertex.kind for vertex in first.planned.plan.vertices] == [VertexKind.SOURCE, VertexKind.SINK]
    eventually("the first epoch", lambda: first.files.last_commit() is not None)
    numbers_come(first, eventually)
    agent = taking.Taking([first], tmp_path)
    last, *_ = commits_seen_at(lambda: agent.trigger(1), monkeypatch)
    checkpoint = agent.complete(1, eventually)
    assert last is not None
    assert checkpoint.batches == {"numbers": last + 1}, "the epoch in flight is the one that is waited for"
    assert all(each.metrics.start_delay > 0 for each in agent.reports.acknowledged[1])
    numbers_come(first, eventually)
    first.stop()
    agent.agent.close()

    again = RunningQuery(numbers.planned("again"))
    assert taking.restored_batches(taking.restore(checkpoint, [again.planned])) == checkpoint.batches
    again.start()
    epochs_pass(again, 1, eventually)
    numbers_come(again, eventually)
    again.stop()
    before, after = numbers.seen("first"), numbers.seen("again")
    assert_nothing_is_missing(before | after)
    assert before & after, "what came after the checkpoint comes again: at least once, not exactly once"
    for partition, last_number in read_up_to(first, checkpoint.batches["numbers"]).items():
        mine = {number for number in after if number % PARTITIONS == partition}
        assert min(mine) == last_number + PARTITIONS, "it goes on right after the epoch"


@pytest.mark.nightly
def test_a_stop_with_savepoint_ends_the_query_at_an_epoch(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    numbers = Numbers(spark, tmp_path)
    first = numbers.start("first")
    epochs_pass(first, 1, eventually)
    agent = taking.Taking([first], tmp_path)
    agent.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    savepoint = agent.complete(1, eventually)
    assert not first.is_active
    assert first.failure(0) is None
    assert savepoint.batches == {"numbers": first.files.last_commit()}
    agent.agent.close()
    again = RunningQuery(numbers.planned("again"))
    taking.restore(savepoint, [again.planned])
    again.start()
    epochs_pass(again, 2, eventually)
    again.stop()
    assert_nothing_is_missing(numbers.seen("first") | numbers.seen("again"))


@pytest.mark.nightly
def test_a_query_continues_after_an_aborted_stop(spark: Any, tmp_path: Path, eventually: Callable[..., object]) -> None:
    numbers = Numbers(spark, tmp_path)
    query = numbers.start("first")
    epochs_pass(query, 1, eventually)
    agent = taking.Taking([query], tmp_path)
    agent.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
    agent.agent.aborted(1)

    def runs_on() -> bool:
        agent.agent.tick()
        return not agent.agent.is_busy

    eventually("the query runs on", runs_on)
    epochs_pass(query, 2, eventually)
    query.stop()
    agent.agent.close()
    assert_nothing_is_missing(numbers.seen("first"))


def test_a_failed_query_reports_the_cause(spark: Any, tmp_path: Path, eventually: Callable[..., object]) -> None:
    query = RunningQuery(Numbers(spark, tmp_path).planned("first", fails_at=10))
    query.start()
    eventually("the end", lambda: not query.is_active)
    info = query.failure(7)
    assert info is not None
    assert "poisoned" in info.message
    assert info.recoverable


def test_exactly_once_is_refused_only_where_it_is_requested(spark: Any, tmp_path: Path) -> None:
    numbers = Numbers(spark, tmp_path)
    for asked in ("EXACTLY_ONCE", "exactly-once"):
        with pytest.raises(ProgramError, match=rf"{MODE}: '{asked}' is not possible with .* query 'numbers'"):
            numbers.planned("work", {MODE: asked})
    assert numbers.planned("work", {MODE: "AT_LEAST_ONCE"}).is_continuous
    assert numbers.planned("work").is_continuous


@pytest.mark.nightly
def test_a_job_with_a_continuous_trigger_is_run_and_marked_at_least_once(
    job_manager: Any, drivers: Any, words: Any, eventually: Callable[..., object]
) -> None:
    """The driver registers, sends heartbeats, takes a checkpoint and stops with a savepoint."""
    driver = drivers.start(job_manager, "wordcount:numbers", words.arguments)
    running = job_manager.await_state(1, DriverState.RUNNING)
    assert running.at_least_once
    checkpoint = job_manager.complete(1)
    assert checkpoint.batches["numbers"] >= 0
    eventually("the epochs in the heartbeats", lambda: epoch_of(job_manager) > checkpoint.batches["numbers"])
    progress = job_manager.heard(Heartbeat)[-1].queries["numbers"]
    assert (progress.input_rows, progress.batch_duration_ms) == (None, None), "Spark does not say: that is not 0"
    savepoint = job_manager.complete(2, CheckpointKind.SYNC_SAVEPOINT)
    assert savepoint.batches["numbers"] > checkpoint.batches["numbers"]
    driver.kill()


def epoch_of(job_manager: Any) -> int:
    beats = [beat.queries["numbers"].batch_id for beat in job_manager.heard(Heartbeat) if "numbers" in beat.queries]
    return max(beats, default=-1)
