"""Describe reported runs as Flink's REST API describes jobs. A batch is a checkpoint.

What Spark's progress does not have is left out or null: batches in progress, failed batches, and figures of tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from monitoring.engine.reported.storing import BATCHES_KEPT, SILENT
from monitoring.models import ReportedRun

Json = dict[str, Any]

# A run without a report for this long is no longer listed, and becomes LOST.
GONE = timedelta(hours=24)
_CLASS = re.compile(r"[\w.$]*[A-Z]\w*(?:Exception|Error|Throwable)\w*")
_NO_WATERMARK = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Batch:
    """A row of ReportedBatch without Spark's progress."""

    pk: int
    number: int
    started_at: datetime
    duration_ms: int | None
    state_size: int | None


def is_listed(run: ReportedRun, now: datetime) -> bool:
    return run.ended_at is not None or now - run.reported_at < GONE


def job_json(run: ReportedRun, now: datetime) -> Json:
    """Return the entry of `/jobs/overview`. `query-id` is not Flink's."""
    state, moved_at = _state(run, now)
    return {
        "jid": run.run_id,
        "name": run.name,
        "state": state,
        "start-time": _ms(run.started_at),
        "end-time": -1 if run.ended_at is None else max(_ms(run.ended_at), _ms(run.started_at)),
        "last-modification": _ms(moved_at),
        "query-id": run.query_id,
    }


def detail_json(run: ReportedRun, progress: Mapping[str, Any] | None, now: datetime) -> Json:
    """Return `/jobs/:id`. `position` is not Flink's. `progress`: of the newest batch, None if there is none."""
    position = None
    if progress is not None:
        sources = [each["endOffset"] or "" for each in progress["sources"]]
        position = {"batch": run.newest_batch, "watermark": _watermark(progress), "sources": sources}
    return {**job_json(run, now), "vertices": [], "position": position}


def config_json(run: ReportedRun) -> Json:
    """Return `/jobs/:id/config`."""
    user = {"queryId": run.query_id, "program": run.program, "sparkVersion": run.spark_version}
    return {"jid": run.run_id, "execution-config": {"user-config": user}}


def checkpoints_json(run: ReportedRun, batches: Mapping[int, Batch]) -> Json:
    """Return `/jobs/:id/checkpoints`. Spark numbers batches without gaps and commits them in this order."""
    history = [batch_json(batches[number]) for number in sorted(batches, reverse=True)[:BATCHES_KEPT]]
    known = run.newest_batch is not None and run.first_batch is not None
    total = (run.newest_batch or 0) - (run.first_batch or 0) + 1 if known else 0
    return {
        "counts": {"total": total, "in_progress": None, "completed": total, "failed": None, "restored": None},
        "summary": {},
        "latest": {"completed": history[0] if history else None, "savepoint": None, "failed": None, "restored": None},
        "history": history,
    }


def batch_json(batch: Batch) -> Json:
    started = _ms(batch.started_at)
    return {
        "id": batch.number,
        "status": "COMPLETED",
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "trigger_timestamp": started,
        "latest_ack_timestamp": None if batch.duration_ms is None else started + batch.duration_ms,
        "end_to_end_duration": batch.duration_ms,
        "checkpointed_size": None,
        "state_size": batch.state_size,
        "processed_data": None,
        "persisted_data": None,
        "num_subtasks": 1,
        "num_acknowledged_subtasks": 1,
        "external_path": None,
        "discarded": False,
        "tasks": {},
    }


def exceptions_json(run: ReportedRun) -> Json:
    """Return `/jobs/:id/exceptions`: the exception that ended the run, if there is one."""
    entries = []
    if run.exception is not None and run.ended_at is not None:
        named = _CLASS.match(run.exception)
        name = named[0] if named else "StreamingQueryException"
        entries.append({"exceptionName": name, "stacktrace": run.exception, "timestamp": _ms(run.ended_at)})
    return {"exceptionHistory": {"entries": entries}}


def _state(run: ReportedRun, now: datetime) -> tuple[str, datetime]:
    """Return the status, and since when it holds."""
    if run.ended_at is not None:
        state = "CANCELED" if run.was_replaced else "FINISHED"
        return state if run.exception is None else "FAILED", run.ended_at
    if now - run.reported_at > SILENT:
        return "RECONCILING", run.reported_at
    return "RUNNING", run.started_at


def _watermark(progress: Mapping[str, Any]) -> int | None:
    """Return the watermark in epoch milliseconds, None if the query has none."""
    try:
        found = datetime.fromisoformat(progress["eventTime"].get("watermark") or "")
    except ValueError:
        return None
    return _ms(found) if found.tzinfo is not None and found > _NO_WATERMARK else None


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
