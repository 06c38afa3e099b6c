"""Restores that are refused because of the sinks' content: rows would be written a second time, or lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import AfterRestore, CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.rescale import RescaleRefused
from checkpointing.spark.restore import Snapshot
from checkpointing.spark.running_query import PlannedQuery
from checkpointing.spark.starting_state import (
    BatchesWereReplaced,
    RowsWouldBeWrittenAgain,
    SnapshotState,
    build_queries,
)

PLAN = "StreamingRelation rate, [timestamp#0, value#1L]"


def planned(name: str, after_restore: AfterRestore, target: str = "kafka") -> PlannedQuery:
    sink = Sink(target, None, after_restore)
    return PlannedQuery(None, query_plan(name, PLAN, sink, {}), Path("/work"), sink)


def state(queries: list[PlannedQuery], *, may_write_again: bool) -> SnapshotState:
    """Return the state of a checkpoint of these queries."""
    operators = tuple(
        OperatorState(vertex.id, vertex.name, vertex.kind, vertex.query, vertex.parallelism, ())
        for query in queries
        for vertex in query.plan.vertices
    )
    properties = CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION)
    batches = {query.name: 4 for query in queries}
    checkpoint = CompletedCheckpoint("job", "words", "w:main", 7, properties, 1, 2, operators, batches, "/chk-7", None)
    common: dict[str, Any] = {"allow_non_restored_state": False, "keep_output": False, "writers_are_gone": True}
    return SnapshotState(
        "job", Snapshot(checkpoint), Path("/brought"), **common, is_own=True, may_write_again=may_write_again
    )


WORDS = planned("words", AfterRestore.WRITTEN_AGAIN)
LETTERS = planned("letters", AfterRestore.WRITTEN_AGAIN, "foreachBatch")
FILES = planned("files", AfterRestore.GOES_BACK)
MEMORY = planned("memory", AfterRestore.REPLACED)


def test_the_refusal_names_the_state_the_queries_and_their_sinks() -> None:
    queries = [WORDS, LETTERS, FILES, MEMORY]
    with pytest.raises(RowsWouldBeWrittenAgain) as refused:
        state(queries, may_write_again=False).check_fits(queries)
    text = str(refused.value)
    assert text.startswith("execution.sinks.after-restore is refuse, so only a person may restore checkpoint 7.")
    assert text.endswith("words to kafka, letters to foreachBatch")


def test_a_restore_that_a_person_requested_continues() -> None:
    state([WORDS], may_write_again=True).check_fits([WORDS])


def test_a_restore_is_allowed_if_all_sinks_show_each_row_once() -> None:
    state([FILES, MEMORY], may_write_again=False).check_fits([FILES, MEMORY])


def test_a_query_missing_in_the_state_writes_nothing_again() -> None:
    state([FILES], may_write_again=False).check_fits([FILES, WORDS])


def test_the_sink_vertex_carries_the_class() -> None:
    classes = {vertex.kind: vertex.after_restore for vertex in WORDS.plan.vertices}
    assert classes == {VertexKind.SOURCE: None, VertexKind.SINK: AfterRestore.WRITTEN_AGAIN}


# --- queries that keep their batch numbers ---------------------------------------------------------------------------


def test_a_state_whose_batches_were_replaced_is_refused_also_to_a_person() -> None:
    repeating = replace(WORDS, sink=replace(WORDS.sink, repeats_numbers=True))
    queries = [repeating, LETTERS]
    since = {"words": 2, "letters": 2}
    with pytest.raises(BatchesWereReplaced) as refused:
        replace(state(queries, may_write_again=True), restored_since=since).check_fits(queries)
    text = str(refused.value)
    assert text.startswith("Query 'words' cannot be restored from checkpoint 7, which contains its batches up to 4. It")
    assert "(waymark.batch-numbers: repeat) and was restored to batch 2 after that checkpoint was taken" in text
    assert text.endswith("may have replaced batches from 3 on: their rows would be lost or doubled. Restore a state "
                         "that was taken since, or one that ends with batch 2 or before.")  # fmt: skip


def test_a_query_that_started_without_state_since_has_replaced_all() -> None:
    repeating = replace(WORDS, sink=replace(WORDS.sink, repeats_numbers=True))
    with pytest.raises(BatchesWereReplaced, match=r"and started without state after .* batches from 0 on: .* since\.$"):
        replace(state([repeating], may_write_again=True), restored_since={"words": -1}).check_fits([repeating])


def test_queries_that_get_new_numbers_replace_nothing() -> None:
    replace(state([WORDS], may_write_again=True), restored_since={"words": 2}).check_fits([WORDS])


COUNTED = """StateStoreSave [value#0], state info [ checkpoint = x, opId = 0, ver = 0, numPartitions = 3], Append
+- Exchange hashpartitioning(value#0, 3)
   +- StreamingRelation rate, [timestamp#0, value#1L]"""


def test_a_query_that_keeps_its_numbers_is_not_rescaled(tmp_path: Path) -> None:
    sink = Sink("foreachBatch", None, AfterRestore.WRITTEN_AGAIN, repeats_numbers=True)
    query = PlannedQuery(None, query_plan("counts", COUNTED, sink, {}), tmp_path / "query", sink)
    on_two = state([query], may_write_again=True)
    operators = tuple(
        replace(
            each,
            parallelism=2,
            subtasks=(SubtaskState(0, SubtaskMetrics(), (StateFile("state/0/0/5.zip", "5", 1, ""),), 0),),
        )
        if each.kind is VertexKind.STATEFUL
        else each
        for each in on_two.snapshot.checkpoint.operators
    )
    rescaled = replace(on_two, snapshot=Snapshot(replace(on_two.snapshot.checkpoint, operators=operators)))
    with pytest.raises(RescaleRefused, match=r"^The state of query 'counts' cannot be put on 3 partitions: .*repeat"):
        build_queries(rescaled, None, tmp_path, [query])  # type: ignore[arg-type]
    assert not query.location.exists()
