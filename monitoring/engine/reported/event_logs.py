"""The transport for a directory of event logs: it stores what the logs report, and answers from the rows.

How far the logs were read is a value that the caller stores with the cluster's row, after the reports. So another
worker continues it, and reports at most what is stored already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from checkpointing.eventlogs import Logs, News, advance
from checkpointing.storage import StorageError
from checkpointing.storage.files import Files
from monitoring.engine.connection import Connection
from monitoring.engine.errors import Malformed, RootUnreadable
from monitoring.engine.fields import Fields
from monitoring.engine.reported.report import Report, batch_in, query_in
from monitoring.engine.reported.storing import store
from monitoring.engine.reported.transport import ReportedTransport
from monitoring.engine.storage_calls import StorageCalls
from monitoring.engine.versions import EVENT_LOGS
from monitoring.models import Cluster
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason, from_json

# The limits of one step.
READS = 40
STEP_S = 3.0


class EventLogTransport(ReportedTransport):
    """Answers for the queries in event logs.

    Each list of jobs reads on, and stores reports if the cluster is stored.
    """

    version = EVENT_LOGS

    def __init__(
        self, connection: Connection, now: Callable[[], datetime] = timezone.now, files: Files | None = None
    ) -> None:
        super().__init__(connection, now)
        self._storage = StorageCalls(connection.url, files)
        self._limit_s = connection.request_limit_s
        self._logs = Logs.from_row(connection.scan)
        self._checked: dict[str, int] = {}
        self._unstored: Reason | str = ""
        self.is_complete = False

    @property
    def stored(self) -> dict[str, Any]:
        """The progress, for the cluster's row."""
        return self._logs.as_row()

    @stored.setter
    def stored(self, row: Mapping[str, Any]) -> None:
        """Continue from this progress, which another worker may have made."""
        self._logs = Logs.from_row(row)

    @property
    def problem(self) -> Reason | str:
        """The first problem of a log, which does not stop the others, "" if there is none."""
        found = (from_json(each) or str(each) for each in self._logs.problems)
        return next(found, self._unstored)

    async def _answer(self, path: str) -> Any:
        if path == "/jobs/overview":
            await self._advance()
            if self._cluster is None:
                return {"jobs": self._open_queries()}
        elif self._cluster is None:
            self._runs = {}
        return await super()._answer(path)

    async def _advance(self) -> None:
        files = self._storage.open()
        ends, left = time.monotonic() + STEP_S, iter(range(READS))
        is_over = False

        def may_continue() -> bool:
            nonlocal is_over
            is_over = next(left, None) is None or time.monotonic() > ends
            return not is_over

        logs, root, now = self._logs, self._storage.root, self._now()
        now_ms = round(now.timestamp() * 1000)
        try:
            logs, news = await self._storage.run(
                lambda: advance(logs, root, files, now_ms, may_continue, self._checked), self._limit_s
            )
        except FileNotFoundError as error:
            raise RootUnreadable(EngineReason.ROOT_MISSING(root=root)) from error
        except StorageError as error:
            raise RootUnreadable(EngineReason.ROOT_UNREADABLE(error=str(error))) from error
        key = self._cluster
        if key is not None and news:
            await self.in_database(lambda: self._store(key, news, now))
        self._logs, self.is_complete = logs, not is_over

    def _store(self, key: int, news: list[News], now: datetime) -> None:
        cluster = Cluster.objects.get(pk=key)
        self._unstored = ""
        for each in sorted(news, key=lambda each: each.at_ms):
            at = min(datetime.fromtimestamp(each.at_ms / 1000, UTC), now)
            try:
                store(cluster, self._report(each, now), at)
            except Malformed as error:
                self._unstored = error.reason

    def _report(self, news: News, now: datetime) -> Report:
        """Return the report without malformed events. The reason of the first one is remembered."""
        queries, batches = [], []
        for raw in news.queries:
            try:
                queries.append(query_in(Fields(raw, "query"), now))
            except Malformed as error:
                self._unstored = self._unstored or error.reason
        for raw in news.batches:
            try:
                batches.append(batch_in(Fields(raw, "progress"), now))
            except Malformed as error:
                self._unstored = self._unstored or error.reason
        return Report(news.program, news.spark, tuple(queries), tuple(batches))

    def _open_queries(self) -> list[dict[str, Any]]:
        """Return entries for the runs that have not ended, for the test of a connection."""
        times = {"start-time": 1, "end-time": -1, "last-modification": 1}
        runs = [(run_id, name) for log in self._logs.logs.values() for run_id, (_, name) in log.open.items()]
        return [{"jid": run_id.replace("-", ""), "name": name, "state": "RUNNING", **times} for run_id, name in runs]
