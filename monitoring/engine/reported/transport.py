"""The transport for a cluster with the agent: it answers Flink's paths from rows, and refuses each command."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from django.utils import timezone

from monitoring.engine.connection import Connection
from monitoring.engine.database_thread import InDatabaseThread, in_database_thread
from monitoring.engine.errors import NotFound, Refused
from monitoring.engine.reported import answers
from monitoring.engine.reported.answers import Batch
from monitoring.engine.reported.storing import BATCHES_KEPT
from monitoring.engine.transport import Answer
from monitoring.engine.versions import REPORTED
from monitoring.models import ReportedBatch, ReportedRun
from monitoring.reasons.engines import EngineReason

T = TypeVar("T")

_JOB = re.compile(r"/jobs/([0-9a-f]{32})(|/config|/exceptions|/checkpoints|/checkpoints/details/\d{1,18})")


@dataclass(frozen=True)
class _Read:
    """What was read of a run. `last_id`: the key of its newest batch. `progress`: Spark's, of that batch."""

    last_id: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    progress: dict[str, Any] | None = None


class ReportedTransport:
    """Answers for the queries that programs report for one cluster. Used by one event loop.

    Only new batches are read: a run's row has the key of its newest one.
    """

    version = REPORTED

    def __init__(self, connection: Connection, now: Callable[[], datetime] = timezone.now) -> None:
        self._cluster = connection.reported_for
        self._now = now
        self._runs: dict[str, ReportedRun] | None = None
        self._read: dict[str, _Read] = {}
        self.in_database: InDatabaseThread = in_database_thread

    async def ask(
        self,
        method: str,
        path: str,
        limit_s: float,
        content: bytes | None = None,
        kind: str | None = None,
        byte_range: str = "",
    ) -> Answer:
        """Return the answer to a path of Flink's REST API. See Transport.ask.

        Raises:
            EngineError: with the reason. Commands raise Refused.
        """
        if method != "GET":
            raise Refused(405, EngineReason.ONLY_WATCHED())
        async with asyncio.timeout(limit_s):
            return Answer(200, {}, json.dumps(await self._answer(path)).encode())

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _answer(self, path: str) -> Any:
        if path in ("/overview", "/jobs/overview"):
            self._runs = await self.in_database(self._load_runs)
            if path == "/jobs/overview":
                return {"jobs": [answers.job_json(run, self._now()) for run in self._runs.values()]}
            counts = dict.fromkeys(("taskmanagers", "slots-total", "slots-available"), 0)
            return {"flink-version": self.version, "jobs-running": len(self._runs), **counts}
        match = _JOB.fullmatch(path)
        if match is None:
            raise NotFound(EngineReason.ONLY_WATCHED())
        if self._runs is None:
            self._runs = await self.in_database(self._load_runs)
        run = self._runs.get(match[1])
        if run is None:
            raise NotFound(EngineReason.RUN_NOT_REPORTED(run=match[1]))
        return await self._of_run(run, match[2])

    async def _of_run(self, run: ReportedRun, rest: str) -> Any:
        if rest == "/config":
            return answers.config_json(run)
        if rest == "/exceptions":
            return answers.exceptions_json(run)
        read = self._read.get(run.run_id, _Read())
        if read.last_id != run.last_id:
            read = self._read[run.run_id] = await self.in_database(lambda: _news(run, read))
        if rest == "/checkpoints":
            return answers.checkpoints_json(run, read.batches)
        if rest == "":
            return answers.detail_json(run, read.progress, self._now())
        batch = read.batches.get(int(rest.rpartition("/")[2]))
        if batch is None:
            raise NotFound(EngineReason.ONLY_WATCHED())
        return answers.batch_json(batch)

    def _load_runs(self) -> dict[str, ReportedRun]:
        now = self._now()
        rows = ReportedRun.objects.filter(cluster=self._cluster).order_by("started_at", "pk")
        runs = {run.run_id: run for run in rows if answers.is_listed(run, now)}
        self._read = {run_id: read for run_id, read in self._read.items() if run_id in runs}
        return runs


def _news(run: ReportedRun, read: _Read) -> _Read:
    columns = ("pk", "batch_id", "started_at", "duration_ms", "state_size")
    rows = ReportedBatch.objects.filter(run=run, pk__gt=read.last_id, pk__lte=run.last_id).values_list(*columns)
    batches = read.batches | {row[1]: Batch(*row) for row in rows}
    newest = run.newest_batch or 0
    progress = ReportedBatch.objects.filter(run=run, batch_id=newest).values_list("progress", flat=True).first()
    kept = {number: batch for number, batch in batches.items() if number > newest - BATCHES_KEPT}
    return replace(read, last_id=run.last_id, batches=kept, progress=progress)
