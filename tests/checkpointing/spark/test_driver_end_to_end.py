"""A real driver with real Spark and a real WebSocket."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from checkpointing.model.messages import (
    CheckpointKind,
    DelayCheckpoint,
    DriverState,
    Heartbeat,
    QueryProgress,
    Register,
    Stop,
    VertexKind,
    VertexRows,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def some_words(seed: int) -> list[str]:
    chance = random.Random(seed)
    return [f"w{chance.randrange(40)}" for _ in range(300)]


def test_a_job_killed_after_a_checkpoint_continues_from_it_and_counts_every_word_once(
    job_manager: Any, drivers: Any, words: Any, tmp_path: Any, eventually: Any
) -> None:
    expected: Counter[str] = Counter()

    def feed(*numbers: int) -> None:
        for number in numbers:
            expected.update(some_words(number))
            words.write(f"f{number}", some_words(number))

    (tmp_path / "token").write_text("secret\n")
    first = drivers.start(job_manager, "wordcount:wordcount", words.arguments, token_file=str(tmp_path / "token"))
    job_manager.await_state(1, DriverState.RUNNING)
    assert job_manager.headers == ["Bearer secret"]
    assert [v.kind for v in job_manager.vertices] == [VertexKind.SOURCE, VertexKind.STATEFUL, VertexKind.SINK]
    assert [v.parallelism for v in job_manager.vertices] == [1, 2, 1]

    feed(1, 2, 3)
    eventually("three batches", lambda: words.counts() == expected)
    checkpoint = job_manager.complete(1)
    assert checkpoint.batches == {"words": 2}
    every_batch_is_counted(job_manager, [some_words(number) for number in (1, 2, 3)], eventually)

    # The batches after checkpoint 1 are abandoned. The restored query divides the same input into other batches.
    feed(4)
    eventually("a batch after the checkpoint", lambda: words.counts() == expected)
    first.kill()
    assert "spark.local.dir" not in first.log, "Spark warns of what is as it should be"

    for file in sorted(words.output.glob("*.json"))[3:]:
        file.unlink()  # remove the abandoned batches' output
    feed(5, 6)
    drivers.start(job_manager, "wordcount:wordcount", words.arguments, attempt=2, restore=checkpoint)
    job_manager.await_state(2, DriverState.RUNNING)
    registered = [m for m in job_manager.heard(Register) if m.attempt == 2]
    assert registered[0].restored_checkpoint_id == 1
    eventually("all words", lambda: words.counts() == expected)

    savepoint_of_a_batch_in_flight(job_manager, words, feed, eventually)
    assert words.counts() == expected

    stopped = job_manager.complete(3, CheckpointKind.SYNC_SAVEPOINT)
    before = words.batches()
    words.write("late", ["late"])
    job_manager.send(Stop(job_manager.session_id))
    job_manager.await_state(2, DriverState.FINISHED)
    assert words.batches() == before, "no batch may reach the sink after a synchronous savepoint"
    expected.update(["late"])

    drivers.start(job_manager, "wordcount:wordcount", words.arguments, attempt=3, restore=stopped)
    eventually("the late word", lambda: words.counts() == expected)


def every_batch_is_counted(job_manager: Any, batches: list[list[str]], eventually: Any) -> None:
    """Wait for the row counts of the vertices. Spark counts no rows of a foreachBatch function."""
    ids = {vertex.kind: vertex.id for vertex in job_manager.vertices}
    updated = sum(len(set(batch)) for batch in batches)
    distinct = len({word for batch in batches for word in batch})
    expected = {
        ids[VertexKind.SOURCE]: VertexRows(written=sum(map(len, batches))),
        ids[VertexKind.STATEFUL]: VertexRows(state=distinct, updated=updated, removed=0, late=0),
    }
    eventually("the rows", lambda: (newest := progress(job_manager)) and newest.rows == expected)


def progress(job_manager: Any) -> QueryProgress | None:
    """Return the query's newest figures, or None before its first batch."""
    queries: dict[str, QueryProgress] = job_manager.heard(Heartbeat)[-1].queries
    return queries.get("words")


def savepoint_of_a_batch_in_flight(job_manager: Any, words: Any, feed: Any, eventually: Any) -> None:
    words.hold()
    feed(7)
    eventually("a batch in flight", words.is_held)
    take = job_manager.trigger(2, CheckpointKind.SAVEPOINT)
    assert take.acknowledgements == [], "the batch in flight has not ended"
    delay = eventually(
        "what the savepoint waits for",
        lambda: [delay for delay in job_manager.heard(DelayCheckpoint) if delay.checkpoint_id == 2],
    )[-1]
    assert delay.cause.startswith("Query 'words' has not come to the end of batch ")
    words.let_go()
    eventually("the savepoint", lambda: len(take.acknowledgements) == 4)
    savepoint = job_manager.finish(take)
    assert savepoint.shared_location is None
    by_kind = {o.kind: o for o in savepoint.operators}
    stateful = [s.metrics for s in by_kind[VertexKind.STATEFUL].subtasks]
    assert all(m.state_size > 0 and m.checkpointed_size == m.state_size for m in stateful)
    assert all(m.start_delay > 0 for m in stateful)
    assert sum(m.processed_records for m in stateful) > 0
    assert by_kind[VertexKind.SOURCE].subtasks[0].metrics.processed_records == 300
    eventually("a heartbeat with the batch", lambda: (p := progress(job_manager)) and p.input_rows == 300)
    (executor,) = job_manager.heard(Heartbeat)[-1].executors
    assert (executor.id, executor.cores, executor.max_memory > 0) == ("driver", 2, True)
