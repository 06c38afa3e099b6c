"""A restore that would write rows a second time, when the job's setting leaves it to people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointing.coordinator.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
)
from checkpointing.messages import AfterRestore, CheckpointKind, VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.restore import Snapshot
from checkpointing.spark.running_query import PlannedQuery
from checkpointing.spark.starting_state import RowsWouldBeWrittenAgain, SnapshotState

PLAN = "StreamingRelation rate, [timestamp#0, value#1L]"


def planned(name: str, after_restore: AfterRestore, target: str = "kafka") -> PlannedQuery:
    sink = Sink(target, None, after_restore)
    return PlannedQuery(None, query_plan(name, PLAN, sink, {}), Path("/work"), sink)


def state(queries: list[PlannedQuery], *, may_write_again: bool) -> SnapshotState:
    """Return a checkpoint of these queries."""
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


def test_a_restore_that_a_person_asked_for_continues() -> None:
    state([WORDS], may_write_again=True).check_fits([WORDS])


def test_sinks_that_show_each_row_once_are_no_reason() -> None:
    state([FILES, MEMORY], may_write_again=False).check_fits([FILES, MEMORY])


def test_a_query_that_the_state_does_not_know_writes_nothing_again() -> None:
    state([FILES], may_write_again=False).check_fits([FILES, WORDS])


def test_the_sink_vertex_carries_the_class() -> None:
    classes = {vertex.kind: vertex.after_restore for vertex in WORDS.plan.vertices}
    assert classes == {VertexKind.SOURCE: None, VertexKind.SINK: AfterRestore.WRITTEN_AGAIN}
