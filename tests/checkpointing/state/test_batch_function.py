"""Operator state of foreachBatch functions in real queries: snapshots, batches that run again, redistribution."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from checkpointing.checkpoint_location.layout import SINK, BatchFile, select_batch
from checkpointing.model.messages import VertexKind
from checkpointing.spark.plan import Sink, explain, query_plan
from checkpointing.spark.restore import RestoreRefused, Snapshot, check_fits
from checkpointing.state import NotInAStreamingQuery, OperatorStateContext, batch_function, with_operator_state

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Recorder:
    """A foreachBatch function that adds every batch to its state, and records the state that it found.

    It fails in batch `fail_at`, and waits in batch `wait_at`.
    """

    def __init__(self, *, fail_at: int = -1, wait_at: int = -1) -> None:
        self.found: list[tuple[int, bool, list[list[Any]]]] = []
        self.fail_at, self.wait_at = fail_at, wait_at
        self.waiting, self.go_on = threading.Event(), threading.Event()

    def __call__(self, frame: Any, batch: int, context: OperatorStateContext) -> None:
        lists = [store.list_state("batches") for store in context.stores]
        self.found.append((batch, context.is_restored, [each.get() for each in lists]))
        lists[batch % len(lists)].add(batch)
        for store in context.stores:
            store.broadcast_state("newest").put("batch", batch)
        context.stores[0].union_list_state("ids").update([f"after {batch}"])
        if batch == self.wait_at:
            self.waiting.set()
            self.go_on.wait(60)
        if batch == self.fail_at:
            raise RuntimeError("as asked")


def writing(queries: Any, recorder: Callable[..., None], **options: Any) -> Any:
    return queries.lines().writeStream.foreachBatch(with_operator_state(recorder, name="writer", **options))


def versions(queries: Any, location: str) -> list[int]:
    return sorted(int(path.name) for path in (queries.root / location / "operators" / "writer").glob("[0-9]*"))


def test_a_restore_continues_from_the_state_of_the_snapshotted_batch(
    queries: Any,
) -> None:
    first = Recorder(wait_at=3)
    for number in range(4):
        queries.feed([str(number)])
    query = queries.start(writing(queries, first), "first")
    assert first.waiting.wait(60)
    checkpoint = queries.snapshot(writing(queries, Recorder()), "first")
    first.go_on.set()
    query.processAllAvailable()
    query.stop()
    assert [batch for batch, _, _ in first.found] == [0, 1, 2, 3]
    [saved] = [file for file in checkpoint.files if file.path.startswith("operators/")]
    assert saved.path == "operators/writer/2"
    sink = next(operator for operator in checkpoint.operators if operator.kind is VertexKind.SINK)
    assert saved in sink.subtasks[0].files

    again = Recorder()
    queries.restore(checkpoint, writing(queries, again), "again")
    query = queries.start(writing(queries, again), "again")
    query.processAllAvailable()
    queries.feed(["4"])
    query.processAllAvailable()
    assert again.found == [(3, True, [[0, 1, 2]]), (4, False, [[0, 1, 2, 3]])]


def test_another_parallelism_splits_lists_and_copies_broadcast_and_union_state(queries: Any) -> None:
    for number in range(5):
        queries.feed([str(number)])
    two = Recorder()
    queries.run(writing(queries, two, parallelism=2), "first")
    checkpoint = queries.snapshot(writing(queries, two, parallelism=2), "first")
    seen: list[Any] = []

    def look(frame: Any, batch: int, context: OperatorStateContext) -> None:
        for store in context.stores:
            newest = dict(store.broadcast_state("newest").items())
            seen.append((store.list_state("batches").get(), newest, store.union_list_state("ids").get()))

    three = writing(queries, look, parallelism=3)
    queries.restore(checkpoint, three, "again")
    queries.feed(["5"])
    queries.run(three, "again")
    newest = {"batch": 4}
    assert seen == [([0, 2], newest, ["after 4"]), ([4, 1], newest, ["after 4"]), ([3], newest, ["after 4"])]


def test_a_batch_that_runs_again_starts_from_the_state_before_it(queries: Any) -> None:
    for number in range(3):
        queries.feed([str(number)])
    with pytest.raises(StreamingQueryException, match="as asked"):
        queries.run(writing(queries, Recorder(fail_at=2)), "first")
    assert versions(queries, "first") == [0, 1]
    second = Recorder()
    queries.run(writing(queries, second), "first")
    assert second.found == [(2, True, [[0, 1]])]
    # As if the driver had died between the function's return and Spark's commit.
    (queries.root / "first" / "commits" / "2").unlink()
    (queries.root / "first" / "commits" / ".2.crc").unlink(missing_ok=True)
    assert versions(queries, "first") == [0, 1, 2]
    third = Recorder()
    queries.feed(["3"])
    queries.run(writing(queries, third), "first")
    assert third.found == [(2, True, [[0, 1]]), (3, False, [[0, 1, 2]])]


def test_the_same_function_started_again_continues_from_its_files(queries: Any) -> None:
    recorder = Recorder()
    writer = writing(queries, recorder)
    queries.feed(["0"])
    queries.run(writer, "first")
    queries.feed(["1"])
    queries.run(writer, "first")
    assert recorder.found == [(0, False, [[]]), (1, True, [[0]])]


def test_versions_follow_sparks_and_an_unchanged_batch_writes_none(queries: Any) -> None:
    queries.spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    found: list[list[int]] = []

    def rarely(frame: Any, batch: int, context: OperatorStateContext) -> None:
        state = context.list_state("batches")
        found.append(state.get())
        if batch in (1, 2, 3, 6):
            state.add(batch)

    try:
        for number in range(8):
            queries.feed([str(number)])
        queries.run(writing(queries, rarely), "first")
    finally:
        queries.spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    assert found[-1] == [1, 2, 3, 6]
    assert versions(queries, "first") == [3, 6]


def test_two_functions_of_one_query_cannot_share_a_name(queries: Any) -> None:
    one, other = (with_operator_state(lambda *_: None, name="writer") for _ in range(2))

    def both(frame: Any, batch: int) -> None:
        one(frame, batch)
        other(frame, batch)

    queries.feed(["0"])
    with pytest.raises(StreamingQueryException, match="two functions of the query use the name 'writer'"):
        queries.run(queries.lines().writeStream.foreachBatch(both), "first")


def test_a_damaged_version_ends_the_query_with_its_place(queries: Any) -> None:
    queries.feed(["0"])
    queries.run(writing(queries, Recorder()), "first")
    (queries.root / "first" / "operators" / "writer" / "0").write_bytes(b'{"version":1,')
    queries.feed(["1"])
    with pytest.raises(StreamingQueryException, match=r"operators/writer: cut off or damaged"):
        queries.run(writing(queries, Recorder()), "first")


def test_state_without_a_matching_function_is_refused_or_dropped_if_allowed(queries: Any) -> None:
    def named(name: str) -> Any:
        function = with_operator_state(lambda *given: given[2].list_state("x").add(given[1]), name=name)
        return queries.lines().writeStream.foreachBatch(function)

    queries.feed(["0"])
    queries.run(named("once"), "first")
    checkpoint = queries.snapshot(named("once"), "first")
    batch_function._declared.discard("once")  # as in the process of another program
    plan = query_plan("words", explain(named("other")), Sink("foreachBatch", None), {})
    with pytest.raises(RestoreRefused, match="operator state 'once' of query 'words'"):
        check_fits(Snapshot(checkpoint), plan.vertices, allow_non_restored_state=False)
    check_fits(Snapshot(checkpoint), plan.vertices, allow_non_restored_state=True)
    queries.restore(checkpoint, named("other"), "again")
    assert (queries.root / "again" / "commits" / "0").exists()
    assert not (queries.root / "again" / "operators").exists()


def test_a_function_called_directly_explains_where_it_belongs(spark: Any) -> None:
    with pytest.raises(NotInAStreamingQuery, match="that foreachBatch calls"):
        with_operator_state(lambda *_: None)(spark.range(1), 0)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65, None])
def test_a_name_that_is_not_a_file_name_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="name: 1 to 64 letters"):
        with_operator_state(lambda *_: None, name=name)


@pytest.mark.parametrize("parallelism", [0, -1, True, 1.5, "2"])
def test_an_invalid_parallelism_is_refused(parallelism: Any) -> None:
    with pytest.raises(ValueError, match="parallelism: a whole number of at least 1"):
        with_operator_state(lambda *_: None, parallelism=parallelism)


def test_a_snapshot_includes_the_newest_version_at_or_below_its_batch() -> None:
    paths = ["metadata", "offsets/4", "offsets/5", "commits/5"]
    paths += [f"operators/{name}" for name in ("a/2", "a/4", "a/6", "a/.5.tmp", "b/5", "b/12", "c/7", "d/x/1")]
    chosen = select_batch(dict.fromkeys(paths, 7), 5, lambda path: Path(path).name.encode())
    assert [file for file in chosen if file.path.startswith("operators/")] == [
        BatchFile("operators/a/4", 7, SINK),
        BatchFile("operators/b/5", 7, SINK),
    ]
