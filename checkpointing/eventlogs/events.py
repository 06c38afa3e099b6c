"""Turn events of streaming queries into reports in the format of the agent (deploy/agent/waymark_agent.py).

All other events are skipped without being parsed. What the log does not have is left out.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

# The newest batches of a run that one step reports. Waymark keeps no more of them.
BATCHES = 100
LONGEST_EXCEPTION, LONGEST_TEXT, MOST_PARTS = 20_000, 4_000, 50
_LONGEST_NAME = 200
PREFIX = b'{"Event":"'
_LISTENER = b"org.apache.spark.sql.streaming.StreamingQueryListener$Query"
_QUERY = PREFIX + _LISTENER
_APPLICATION = (PREFIX + b"SparkListenerApplicationStart", PREFIX + b"SparkListenerApplicationEnd")
_START = PREFIX + b"SparkListenerLogStart"
# Events that have their time near the beginning of the line.
_TIMED = (
    PREFIX + b"SparkListenerJobEnd",
    PREFIX + b"SparkListenerJobStart",
    PREFIX + b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd",
)
_TIME = re.compile(rb'"(?:Completion Time|Submission Time|time)":(\d{13})\b')
_OPERATOR = (
    *("operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark"),
    *("memoryUsedBytes", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs", "numShufflePartitions"),
    "customMetrics",
)
_BATCH = ("id", "runId", "name", "timestamp", "batchId", "batchDuration", "durationMs", "eventTime")
_RATES = ("inputRowsPerSecond", "processedRowsPerSecond")


@dataclass(frozen=True)
class News:
    """What a step read of one application. `at_ms`: when its log changed last."""

    program: str
    spark: str
    at_ms: int
    queries: tuple[Json, ...]
    batches: tuple[Json, ...]


@dataclass
class Application:
    """An application as the events so far describe it. `open`: the runs that have not ended, with id and name.

    `latest_ms`: the time of the newest event that has one.
    """

    program: str = ""
    spark: str = ""
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
    latest_ms: int = 0
    _queries: dict[str, Json] = field(default_factory=dict)
    _batches: dict[str, deque[Json]] = field(default_factory=dict)

    def read(self, line: bytes) -> bool:
        """Read an event. Return False if it is damaged."""
        if line.startswith(_TIMED):
            if found := _TIME.search(line, 0, 500):
                self._passes(int(found[1]))
            return True
        if not line.startswith((_QUERY, *_APPLICATION, _START)):
            return line.startswith(PREFIX) or not line
        try:
            self._apply(json.loads(line, parse_constant=lambda _: None))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        return True

    def end(self) -> None:
        """End the remaining runs, because the application has ended."""
        for run_id in list(self.open):
            self._end(run_id, None)

    def news(self, at_ms: int) -> News:
        """Return what was read. Runs without events are alive as long as their application writes.

        No run has ended after the log's last change, even if the clock of the application is wrong.
        """
        for query in self._queries.values():
            if query["state"] == "ended":
                query["ended_at"] = _text(min(query["ended_at"] or at_ms, at_ms))
        alive = {run_id: self._query(run_id) for run_id in self.open}
        batches = (batch for each in self._batches.values() for batch in each)
        program = self.program or "Spark"
        return News(program, self.spark, at_ms, tuple({**alive, **self._queries}.values()), tuple(batches))

    def _apply(self, event: Json) -> None:
        match str(event["Event"]).rpartition("$Query")[2] or event["Event"]:
            case "StartedEvent":
                self._opens(event)
                self._query(event["runId"])["started_at"] = event["timestamp"]
                self._passes(_ms(event["timestamp"]))
            case "ProgressEvent":
                self._read_progress(event["progress"])
            case "IdleEvent":
                if event["runId"] not in self.open:
                    self._opens(event)
                self._query(event["runId"])["idle_at"] = event["timestamp"]
                self._passes(_ms(event["timestamp"]))
            case "TerminatedEvent":
                if event["runId"] not in self.open:
                    self._opens(event)
                self._end(event["runId"], event.get("exception"))
            case "SparkListenerLogStart":
                self.spark = str(event["Spark Version"])[:50]
            case "SparkListenerApplicationStart":
                self.program = str(event["App Name"])[:_LONGEST_NAME]
                self._passes(int(event["Timestamp"]))
            case "SparkListenerApplicationEnd":
                self._passes(int(event["Timestamp"]))
                self.end()

    def _read_progress(self, progress: Json) -> None:
        kept = _known(progress, _BATCH)
        kept |= _known(progress, ("numInputRows", *_RATES))
        kept["stateOperators"] = [_known(each, _OPERATOR) for each in _parts(progress, "stateOperators")]
        kept["sources"] = [_source(each) for each in _parts(progress, "sources")]
        kept["sink"] = _known(progress.get("sink") or {}, ("description", "numOutputRows"))
        _add_totals(kept)
        self._opens(kept)
        self._batches.setdefault(kept["runId"], deque(maxlen=BATCHES)).append(kept)
        self._passes(_ms(kept["timestamp"]) + int(kept.get("batchDuration") or 0))

    def _opens(self, event: Json) -> None:
        query_id, run_id = str(event["id"]), str(event["runId"])
        name = event.get("name") or self.open.get(run_id, ("", ""))[1]
        self.open[run_id] = query_id, str(name)[:_LONGEST_NAME]

    def _query(self, run_id: str) -> Json:
        if run_id not in self._queries:
            query_id, name = self.open[run_id]
            fresh = {"query_id": query_id, "run_id": run_id, "name": name, "state": "running"}
            self._queries[run_id] = fresh
        return self._queries[run_id]

    def _end(self, run_id: str, exception: object) -> None:
        """End a run. Spark does not log the time, so the time of the newest earlier event is used."""
        query = self._query(run_id)
        query |= {"state": "ended", "ended_at": self.latest_ms}
        if exception is not None:
            query["exception"] = str(exception)[:LONGEST_EXCEPTION]
        self.open.pop(run_id, None)

    def _passes(self, at_ms: int) -> None:
        self.latest_ms = max(self.latest_ms, at_ms)


def _source(read: Mapping[str, Any]) -> Json:
    kept = _known(read, ("numInputRows", *_RATES))
    kept["description"] = _short(read.get("description"))
    if read.get("endOffset") is not None:
        kept["endOffset"] = _short(read["endOffset"])
    return kept


def _add_totals(batch: Json) -> None:
    """Add the sums over the sources. Spark leaves them out of the event log, and has them in its own progress."""
    for name in ("numInputRows", *_RATES):
        values = [each[name] for each in batch["sources"] if name in each]
        if name not in batch and values and len(values) == len(batch["sources"]):
            batch[name] = sum(values)


def _parts(read: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    return list(read.get(name) or ())[:MOST_PARTS]


def _known(read: Mapping[str, Any], names: Iterable[str]) -> Json:
    """Return the values of these names. Null, and "NaN" for a rate that Spark does not know, are left out."""
    found = {name: read.get(name) for name in names}
    return {key: value for key, value in found.items() if value is not None and value not in ("NaN", "Infinity")}


def _short(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
