"""Describe queries as Flink's REST API describes jobs. A batch is a checkpoint, which the query itself acknowledges.

What the files do not show is left out or null: rows, failures, restarts, operators, and figures of tasks.
"""

from __future__ import annotations

from typing import Any

from checkpointing.watched.query import Query
from checkpointing.watched.scanning import Found

Json = dict[str, Any]

LONGEST_OFFSETS, MOST_SOURCES = 4_000, 50


def job_json(path: str, found: Found, *, ended: bool = False) -> Json:
    """Return the entry of `/jobs/overview`. `ended`: of the query that had this location before.

    `query-id` is not Flink's.
    """
    query_id = found.previous_id if ended else found.query_id
    return {
        "jid": query_id,
        "name": path,
        "state": "CANCELED" if ended else found.state,
        "start-time": found.started_ms,
        "end-time": found.started_ms if ended else -1,
        "last-modification": found.started_ms if ended else found.moved_ms,
        "query-id": query_id,
    }


def detail_json(path: str, found: Found, query: Query | None) -> Json:
    """Return `/jobs/:id`. `position` is not Flink's."""
    position = None if query is None else query.position
    read = None
    if position is not None:
        sources = [
            each if len(each) <= LONGEST_OFFSETS else f"{each[:LONGEST_OFFSETS]}…"
            for each in position.sources[:MOST_SOURCES]
        ]
        read = {"batch": position.batch, "watermark": position.watermark_ms, "sources": sources}
    return {**job_json(path, found), "vertices": [], "position": read}


def config_json(query: Query) -> Json:
    """Return `/jobs/:id/config`. Spark keeps these settings for the life of the checkpoint location."""
    settings = {} if query.position is None else dict(query.position.settings)
    user = {"checkpointLocation": query.location, **settings}
    return {"jid": query.query_id, "execution-config": {"user-config": user}}


def checkpoints_json(query: Query) -> Json:
    """Return `/jobs/:id/checkpoints`. Batches are numbered from 0 without gaps, so the newest number counts all."""
    history = [each for number in query.numbers if (each := batch_json(query, number)) is not None]
    pending = sum(each["status"] == "IN_PROGRESS" for each in history)
    total = query.started + 1
    newest = next((each for each in history if each["status"] == "COMPLETED"), None)
    return {
        "counts": {
            "total": total,
            "in_progress": pending,
            "completed": total - pending,
            "failed": None,
            "restored": None,
        },
        "summary": {},
        "latest": {"completed": newest, "savepoint": None, "failed": None, "restored": None},
        "history": history,
    }


def batch_json(query: Query, number: int) -> Json | None:
    """Return the batch as a checkpoint, None if the files do not have it or the time of its start."""
    offsets, commit = query.offsets.get(number), query.commits.get(number)
    if offsets is None or offsets.modified_ms is None:
        return None
    started, committed = offsets.modified_ms, None if commit is None else commit.modified_ms
    return {
        "id": number,
        "status": "IN_PROGRESS" if commit is None else "COMPLETED",
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "trigger_timestamp": started,
        "latest_ack_timestamp": committed,
        "end_to_end_duration": None if committed is None else max(committed - started, 0),
        "checkpointed_size": None,
        "state_size": None if commit is None else query.size_of(number),
        "processed_data": None,
        "persisted_data": None,
        "num_subtasks": 1,
        "num_acknowledged_subtasks": int(commit is not None),
        "external_path": None,
        "discarded": False,
        "tasks": {},
    }
