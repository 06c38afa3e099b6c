"""The transport for a directory of checkpoint locations: it answers Flink's paths from files.

Its only command takes a savepoint, if there is a directory for them. It stores a LocationCopy, from which the copy is
made (monitoring.savepoints.copies).

The scan is a value that the caller stores with the cluster's row, so that another worker continues it. What was read of
a query is kept in memory only, and is read again within two polls.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from checkpointing.clock import Clock, SystemClock
from checkpointing.storage import StorageError, is_local
from checkpointing.storage.files import Files
from checkpointing.watched import Found, Query, Scan, Vanished, advance, answers, polled
from checkpointing.watched.scanning import location_of
from monitoring.engine.connection import Connection
from monitoring.engine.database_thread import in_database_thread
from monitoring.engine.errors import NotFound, NotReady, Refused, RootUnreadable
from monitoring.engine.storage_calls import StorageCalls
from monitoring.engine.transport import Answer
from monitoring.engine.versions import WATCHED
from monitoring.models import CopyState, LocationCopy
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason, from_json
from monitoring.reasons.refusals import RefusalReason

# The limits of one step of a scan.
LISTINGS = 40
STEP_S = 3.0
_JOB = re.compile(r"/jobs/([0-9a-f]{32})(/.*)?")
_SAVEPOINT = re.compile(r"/jobs/([0-9a-f]{32})/savepoints(?:/([0-9a-f]{32}))?")
_DETAILS = re.compile(r"/checkpoints/details/(\d{1,18})")


class WatchedTransport:
    """Answers for the queries below a root. Used by one event loop; storage is read in daemon threads."""

    def __init__(self, connection: Connection, clock: Clock | None = None, files: Files | None = None) -> None:
        self._storage = StorageCalls(connection.url, files)
        self._saves_to = connection.saves_to
        self._saves_for = connection.saves_for
        self._clock = clock or SystemClock()
        self._queries: dict[str, Query] = {}
        self._limit_s = connection.request_limit_s
        self.scan = Scan.from_row(connection.scan)

    @property
    def _refusal(self) -> Reason:
        return EngineReason.ONLY_SAVED() if self._saves_to else EngineReason.ONLY_WATCHED()

    @property
    def scan(self) -> Scan:
        return self._scan

    @scan.setter
    def scan(self, scan: Scan) -> None:
        """Continue from this scan, which another worker may have made."""
        self._scan = scan
        self._paths = {each.query_id: path for path, each in scan.found.items()}

    @property
    def stored(self) -> dict[str, Any]:
        """The progress, for the cluster's row."""
        return self.scan.as_row()

    @stored.setter
    def stored(self, row: Mapping[str, Any]) -> None:
        self.scan = Scan.from_row(row)

    @property
    def is_complete(self) -> bool:
        """Whether everything was visited once."""
        return self.scan.passes > 0

    @property
    def problem(self) -> Reason | str:
        """The first problem of the scan or of a query that does not stop the others, "" if there is none."""
        read = (each.problem for each in self._queries.values())
        return next((from_json(each) or str(each) for each in chain(self.scan.problems, read) if each), "")

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
        savepoint = _SAVEPOINT.fullmatch(path)
        if method != "GET" and (savepoint is None or savepoint[2] or not self._saves_to):
            raise Refused(405, self._refusal)
        self._limit_s = limit_s
        if savepoint is None:
            return Answer(200, {}, json.dumps(await self._answer(path)).encode())
        if method == "GET":
            copy = await in_database_thread(lambda: _copy_of(savepoint[1], savepoint[2]))
            return Answer(200, {}, json.dumps(_copy_json(copy)).encode())
        trigger_id = json.loads(content or b"{}")["triggerId"]
        await in_database_thread(partial(self._request_copy, savepoint[1], trigger_id))
        return Answer(202, {}, json.dumps({"request-id": trigger_id}).encode())

    async def target_problem(self) -> Reason | None:
        """Return why savepoints cannot be stored, None if there is no reason or it is not known before."""
        target = self._saves_to
        if not target or not is_local(target) or await self._storage.run(Path(target).is_dir, self._limit_s):
            return None
        missing: Reason = RefusalReason.TARGET_MISSING(target=target)
        return missing

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _answer(self, path: str) -> Any:
        if path == "/overview":
            counts = dict.fromkeys(("taskmanagers", "slots-total", "slots-available"), 0)
            return {"flink-version": WATCHED, "jobs-running": len(self.scan.found), **counts}
        if path == "/jobs/overview":
            return await self._jobs()
        match = _JOB.fullmatch(path)
        if match is None:
            raise NotFound(EngineReason.ONLY_WATCHED())
        return await self._of_job(match[1], match[2] or "")

    async def _jobs(self) -> dict[str, Any]:
        files = self._storage.open()
        ends, left = time.monotonic() + STEP_S, iter(range(LISTINGS))

        def may_continue() -> bool:
            return next(left, None) is not None and time.monotonic() < ends

        try:
            scan, root, now_ms = self.scan, self._storage.root, self._clock.now_ms()
            work = self._storage.run(lambda: advance(scan, root, files, now_ms, may_continue), self._limit_s)
            self.scan = await work
        except FileNotFoundError as error:
            raise RootUnreadable(EngineReason.ROOT_MISSING(root=self._storage.root)) from error
        except StorageError as error:
            raise RootUnreadable(EngineReason.ROOT_UNREADABLE(error=str(error))) from error
        self._queries = {key: query for key, query in self._queries.items() if key in self._paths}
        jobs = [answers.job_json(self._name(path), found) for path, found in self.scan.found.items()]
        jobs += [
            answers.job_json(self._name(path), found, ended=True)
            for path, found in self.scan.found.items()
            if found.previous_id
        ]
        return {"jobs": jobs}

    async def _of_job(self, query_id: str, rest: str) -> Any:
        path = self._path_of(query_id)
        if rest == "/checkpoints":
            return answers.checkpoints_json(await self._poll(path, query_id))
        query, found = self._queries.get(query_id), self.scan.found[path]
        if rest == "":
            return answers.detail_json(self._name(path), found, query)
        details = _DETAILS.fullmatch(rest)
        if query is None and (details or rest == "/config"):
            query = await self._poll(path, query_id)
        if query is not None and rest == "/config":
            return answers.config_json(query)
        batch = answers.batch_json(query, int(details[1])) if query is not None and details else None
        if batch is None:
            raise NotFound(EngineReason.ONLY_WATCHED())
        return batch

    def _path_of(self, query_id: str) -> str:
        path = self._paths.get(query_id)
        if path is None:
            if self.scan.passes == 0:
                raise NotReady(EngineReason.NOT_SCANNED_YET(root=self._storage.root))
            raise NotFound(EngineReason.LOCATION_UNKNOWN(query=query_id))
        return path

    def _request_copy(self, query_id: str, trigger_id: str) -> None:
        """Store the request, unless an earlier one has its trigger ID."""
        place = {"location": location_of(self._storage.root, self._path_of(query_id)), "target": self._saves_to}
        values = {"cluster_id": self._saves_for, "query_id": query_id, **place}
        LocationCopy.objects.get_or_create(trigger_id=trigger_id, defaults=values)

    async def _poll(self, path: str, query_id: str) -> Query:
        files, now_ms = self._storage.open(), self._clock.now_ms()
        query = self._queries.get(query_id) or Query(location_of(self._storage.root, path), query_id)
        found = self.scan.found[path]
        if found.measured_ms > query.measured_ms:  # another worker measured the query later
            query = replace(query, state_size=found.state_size, sized_from=found.sized_from)
            query = replace(query, measured_ms=found.measured_ms, measurement=None)
        try:
            query = await self._storage.run(lambda: polled(query, files, now_ms), self._limit_s)
        except Vanished as gone:
            self._forget(path, query_id, gone.query_id, now_ms)
            raise NotFound(EngineReason.LOCATION_UNKNOWN(query=query_id)) from gone
        except StorageError as error:
            reason = RefusalReason.NOT_READABLE(location=path or self._storage.root, error=str(error))
            raise Refused(403, reason) from error
        self._queries[query_id] = query
        self._note(path, query, now_ms)
        return query

    def _note(self, path: str, query: Query, now_ms: int) -> None:
        """Keep in the scan what other workers need."""
        known = self.scan.found.get(path)
        if known is None or known.query_id != query.query_id:
            return
        found = replace(known, state_size=query.state_size, sized_from=query.sized_from, measured_ms=query.measured_ms)
        state = "RUNNING" if query.is_active(now_ms) else "RECONCILING"
        if state != known.state:
            found = replace(found, state=state, moved_ms=now_ms)
        if found != known:
            self.scan = self.scan.with_found(path, found)

    def _forget(self, path: str, query_id: str, next_id: str, now_ms: int) -> None:
        self._queries.pop(query_id, None)
        if not next_id or next_id in self._paths:
            self.scan = self.scan.without(path)
        else:
            found = Found(next_id, now_ms, "RECONCILING", now_ms, previous_id=query_id)
            self.scan = self.scan.with_found(path, found)

    def _name(self, path: str) -> str:
        """Return the name of the job: the path below the root, because the files do not have the query's name."""
        return path or self._storage.root.rstrip("/").rpartition("/")[2] or self._storage.root


def _copy_of(query_id: str, trigger_id: str) -> LocationCopy:
    copy = LocationCopy.objects.filter(query_id=query_id, trigger_id=trigger_id).first()
    if copy is None:
        raise NotFound(EngineReason.NO_SUCH_COPY(trigger=trigger_id))
    return copy


def _copy_json(copy: LocationCopy) -> dict[str, Any]:
    """Return what Flink answers about a savepoint. `refusal` is not Flink's."""
    match copy.state:
        case CopyState.COMPLETED:
            return {"status": {"id": "COMPLETED"}, "operation": {"location": copy.path}}
        case CopyState.FAILED:
            reason = copy.failure_value
            cause = {"class": "", "stack-trace": copy.failure, "refusal": reason.as_json() if reason else None}
            return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    return {"status": {"id": "IN_PROGRESS"}}
