"""Read a post of the agent strictly: every value has the right type and size, or Malformed names its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields, decode
from monitoring.reasons.engines import EngineReason

VERSION = 1
LARGEST_BODY = 2_000_000
MOST_QUERIES, MOST_BATCHES, MOST_PARTS = 1_000, 200, 100
_LONGEST = 4_000
_LONGEST_EXCEPTION = 20_000
_OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=1)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_RATES = ("inputRowsPerSecond", "processedRowsPerSecond")
_COUNTS = (
    *("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark", "memoryUsedBytes"),
    *("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs", "numShufflePartitions"),
)
# The size of the state itself. `memoryUsedBytes` also counts older versions, or caches only.
_STATE_SIZES = ("stateOnCurrentVersionSizeBytes", "rocksdbSstFileSize", "rocksdbTotalSSTFilesBytes")


@dataclass(frozen=True)
class QueryReport:
    """A query as its program knows it. None: not reported."""

    query_id: str
    run_id: str
    name: str
    started_at: datetime | None = None
    idle_at: datetime | None = None
    ended_at: datetime | None = None
    exception: str | None = None
    dropped: int = 0


@dataclass(frozen=True)
class BatchReport:
    """Spark's progress of a batch. `progress` has its known fields, with Spark's names."""

    query: QueryReport
    batch_id: int
    started_at: datetime
    duration_ms: int | None
    state_size: int | None
    progress: Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    program: str
    spark_version: str
    queries: tuple[QueryReport, ...]
    batches: tuple[BatchReport, ...]

    @property
    def query_ids(self) -> set[str]:
        return {each.query_id for each in (*self.queries, *(batch.query for batch in self.batches))}


def report_in(body: bytes, now: datetime) -> Report:
    """Return the report in a post. Raise Malformed, whose reason names the field."""
    fields = Fields(decode(body), "report")
    version = fields.whole("version")
    if version != VERSION:
        raise Malformed(EngineReason.REPORT_VERSION(where="report.version", found=version, known=VERSION))
    program = fields.child("program")
    queries, batches = _list(fields, "queries", MOST_QUERIES), _list(fields, "progress", MOST_BATCHES)
    return Report(
        program=_text(program, "name", 200),
        spark_version=_text(program, "spark", 50),
        queries=tuple(query_in(each, now) for each in queries),
        batches=tuple(batch_in(each, now) for each in batches),
    )


def query_in(fields: Fields, now: datetime) -> QueryReport:
    state = fields.text("state")
    if state not in ("running", "ended"):
        allowed = ("running", "ended")
        raise Malformed(EngineReason.NOT_ONE_OF(name=f"{fields.where}.state", value=state[:40], allowed=allowed))
    ended_at = _time(fields, "ended_at", now)
    exception = _optional(fields, "exception", _LONGEST_EXCEPTION)
    return QueryReport(
        query_id=_id(fields, "query_id"),
        run_id=_id(fields, "run_id"),
        name=_optional(fields, "name", 300) or "",
        started_at=_time(fields, "started_at", now),
        idle_at=_time(fields, "idle_at", now),
        ended_at=(ended_at or now) if state == "ended" else None,
        exception=exception if state == "ended" else None,
        dropped=min(fields.amount("dropped") or 0, 2**31 - 1),
    )


def batch_in(fields: Fields, now: datetime) -> BatchReport:
    batch_id, started_at = fields.whole("batchId"), _time(fields, "timestamp", now)
    if batch_id < 0:
        raise Malformed(EngineReason.OUT_OF_RANGE(where=f"{fields.where}.batchId"))
    if started_at is None:
        fields.text("timestamp")  # missing
        raise Malformed(EngineReason.NOT_A_TIME(where=f"{fields.where}.timestamp"))
    name = _optional(fields, "name", 300) or ""
    query = QueryReport(_id(fields, "id"), _id(fields, "runId"), name, started_at)
    phases = _amounts(fields, "durationMs")
    operators = [_operator(each) for each in _list(fields, "stateOperators", MOST_PARTS)]
    progress = {
        "numInputRows": fields.amount("numInputRows"),
        **{name: fields.number(name) for name in _RATES},
        "durationMs": phases,
        "eventTime": _texts(fields, "eventTime"),
        "stateOperators": operators,
        "sources": [_source(each) for each in _list(fields, "sources", MOST_PARTS)],
        "sink": _sink(fields),
    }
    duration = fields.amount("batchDuration")
    duration = phases.get("triggerExecution") if duration is None else duration
    return BatchReport(query, batch_id, started_at, duration, _state_size(operators), progress)


def _operator(fields: Fields) -> dict[str, Any]:
    counts = {name: fields.amount(name) for name in _COUNTS}
    custom = _amounts(fields, "customMetrics")
    return {"operatorName": _text(fields, "operatorName", 200), **counts, "customMetrics": custom}


def _source(fields: Fields) -> dict[str, Any]:
    rates = {name: fields.number(name) for name in _RATES}
    description, offset = _text(fields, "description", _LONGEST), _optional(fields, "endOffset", _LONGEST)
    return {"description": description, "endOffset": offset, "numInputRows": fields.amount("numInputRows"), **rates}


def _sink(fields: Fields) -> dict[str, Any]:
    sink = fields.optional_child("sink")
    if sink is None:
        return {}
    return {"description": _optional(sink, "description", _LONGEST), "numOutputRows": sink.amount("numOutputRows")}


def _state_size(operators: list[dict[str, Any]]) -> int | None:
    """Return the size of the state of all operators, None if one of them does not report it."""
    sizes = [
        next((each["customMetrics"][name] for name in _STATE_SIZES if name in each["customMetrics"]), None)
        for each in operators
    ]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def _list(fields: Fields, name: str, most: int) -> list[Fields]:
    found = fields.children(name)
    if len(found) > most:
        raise Malformed(EngineReason.TOO_MANY(where=f"{fields.where}.{name}", most=most))
    return found


def _text(fields: Fields, name: str, longest: int) -> str:
    value = fields.text(name)
    if len(value) > longest:
        raise Malformed(EngineReason.TOO_LONG(where=f"{fields.where}.{name}", most=longest))
    return value


def _optional(fields: Fields, name: str, longest: int) -> str | None:
    return None if fields.raw.get(name) is None else _text(fields, name, longest)


def _id(fields: Fields, name: str) -> str:
    try:
        return UUID(_text(fields, name, 36)).hex
    except ValueError as error:
        raise Malformed(EngineReason.NOT_AN_IDENTIFIER(where=f"{fields.where}.{name}")) from error


def _time(fields: Fields, name: str, now: datetime) -> datetime | None:
    """Return a time in ISO 8601 with a time zone, None if it is absent or null."""
    text = _optional(fields, name, 40)
    if text is None:
        return None
    where = f"{fields.where}.{name}"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Malformed(EngineReason.NOT_A_TIME(where=where)) from error
    if found.tzinfo is None:
        raise Malformed(EngineReason.NOT_A_TIME(where=where))
    if not _OLDEST <= found <= now + _AHEAD:
        raise Malformed(EngineReason.OUT_OF_RANGE(where=where))
    return found.astimezone(UTC)


def _amounts(fields: Fields, name: str) -> dict[str, int]:
    """Return an object whose values are sizes, counts or durations. Unknown ones are left out."""
    child = fields.optional_child(name)
    if child is None:
        return {}
    _check_names(child)
    return {key: value for key in child.raw if (value := child.amount(key)) is not None}


def _texts(fields: Fields, name: str) -> dict[str, str]:
    child = fields.optional_child(name)
    if child is None:
        return {}
    _check_names(child)
    return {key: _text(child, key, 100) for key in child.raw}


def _check_names(fields: Fields) -> None:
    if len(fields.raw) > MOST_PARTS:
        raise Malformed(EngineReason.TOO_MANY(where=fields.where, most=MOST_PARTS))
    wrong = next((key for key in fields.raw if not _NAME.fullmatch(key)), None)
    if wrong is not None:
        raise Malformed(EngineReason.NOT_AN_IDENTIFIER(where=f"{fields.where}.{wrong[:40]}"))
