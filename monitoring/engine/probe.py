"""Test a connection: find out which engine answers at a cluster's address, or why none does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from django.conf import settings

from monitoring.engine.answers import JobOverview, ManagerConfig, Overview, WebConfig
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine.identity import Identity, identity_of
from monitoring.engine.reported.event_logs import EventLogTransport
from monitoring.engine.versions import REPORTED, EngineVersion
from monitoring.engine.watched import WatchedTransport
from monitoring.models import Cluster, ReportedRun
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.state_roots import names_a_root

T = TypeVar("T")
Now = Callable[[], datetime]

# A larger difference between the clocks makes times incomparable, so a page shows a remark.
CLOCKS_APART_S = 5.0


@dataclass(frozen=True)
class Found:
    """The engine that answered. A field is None if the engine does not report it.

    `clock_s` is the number of seconds by which the engine's clock is ahead of Waymark's.
    """

    version: EngineVersion
    commit: str
    jobs: dict[str, int]  # number of jobs by status
    taskmanagers: int
    slots_total: int
    slots_available: int
    history_length: int | None
    checkpoint_directory: str
    savepoint_directory: str
    can_submit: bool | None
    can_cancel: bool | None
    clock_s: float | None
    identity: Identity | None
    remarks: tuple[Reason, ...] = field(default=())

    @property
    def engine(self) -> Reason | str:
        if self.version.watched:
            return "Spark Structured Streaming"
        return EngineReason.PYSPARK() if self.version.waymark else "Apache Flink"

    @property
    def job_count(self) -> int:
        return sum(self.jobs.values())

    @property
    def reason(self) -> Reason:
        if self.version.watched:
            return EngineReason.FOUND_QUERIES(count=self.job_count)
        jobs = ", ".join(f"{count} {state}" for state, count in self.jobs.items())
        if not jobs:
            return EngineReason.WITHOUT_JOBS(version=self.version.text)
        return EngineReason.WITH_JOBS(version=self.version.text, jobs=jobs)


async def probe(client: FlinkClient, now: Now) -> Found:
    """Return the engine that answers. Raise EngineError if its overview or list of jobs is not like Flink's."""
    overview = await client.overview()
    if client.scanning is not None:
        jobs = await client.jobs_overview()
        target_problem = await client.watched.target_problem() if client.watched is not None else None
        return _found_queries(overview, jobs, client.scanning, target_problem)
    jobs, web, manager = await asyncio.gather(
        client.jobs_overview(), _or_none(client.web_config()), _or_none(client.manager_config())
    )
    date = await client.server_date()
    return _found(overview, jobs, web, manager, None if date is None else (date - now()).total_seconds())


async def _or_none(asked: Awaitable[T]) -> T | None:
    """Return the result of an optional request, None if the engine does not support it."""
    try:
        return await asked
    except EngineError:
        return None


def _found(
    overview: Overview,
    jobs: tuple[JobOverview, ...],
    web: WebConfig | None,
    manager: ManagerConfig | None,
    clock_s: float | None,
) -> Found:
    version = EngineVersion.parse(overview.version)
    return Found(
        version=version,
        commit=overview.commit,
        jobs=dict(Counter(job.state for job in jobs).most_common()),
        taskmanagers=overview.taskmanagers,
        slots_total=overview.slots_total,
        slots_available=overview.slots_available,
        history_length=manager.history_length if manager else None,
        checkpoint_directory=manager.checkpoint_directory if manager else "",
        savepoint_directory=manager.savepoint_directory if manager else "",
        can_submit=web.can_submit if web else None,
        can_cancel=web.can_cancel if web else None,
        clock_s=clock_s,
        identity=identity_of(manager.settings) if manager else None,
        remarks=tuple(_remarks(version, web, manager, clock_s)),
    )


def _found_queries(
    overview: Overview,
    jobs: tuple[JobOverview, ...],
    scanning: WatchedTransport | EventLogTransport,
    target_problem: Reason | None,
) -> Found:
    continues = None if scanning.is_complete else EngineReason.SCAN_CONTINUES()
    said = (scanning.problem, continues, target_problem)
    remarks = tuple(each for each in said if isinstance(each, Reason))
    return replace(_found(overview, jobs, None, None, None), remarks=remarks)


def found_reports(cluster: Cluster) -> Found:
    """Return the queries that programs report for the cluster, which may be new. There is no server to contact."""
    count = ReportedRun.objects.filter(cluster=cluster, ended_at=None).count() if cluster.pk else 0
    found = _found(Overview(REPORTED, "", 0, 0, 0, count), (), None, None, None)
    return replace(found, jobs={"RUNNING": count} if count else {})


def _unreached(manager: ManagerConfig | None) -> Reason | str:
    """Return the state directories that the cluster reports outside STATE_ROOTS, "" if there are none.

    If the cluster reports no directory, the result depends only on whether STATE_ROOTS is set.
    """
    said = [manager.checkpoint_directory, manager.savepoint_directory] if manager else []
    known = [directory for directory in dict.fromkeys(said) if directory]
    if not known:
        return "" if settings.STATE_ROOTS else EngineReason.ITS_STATE()
    return " or ".join(directory for directory in known if not names_a_root(directory))


def _remarks(
    version: EngineVersion, web: WebConfig | None, manager: ManagerConfig | None, clock_s: float | None
) -> list[Reason]:
    said = [version.remark()]
    if manager is None:
        said.append(EngineReason.NO_CONFIGURATION())
    elif not version.waymark and not manager.savepoint_directory:
        said.append(EngineReason.NO_SAVEPOINT_DIRECTORY())
    if not version.waymark and (unreached := _unreached(manager)):
        said.append(EngineReason.STATE_NOT_REACHED(where=unreached))
    if web is not None and not web.can_submit:
        said.append(EngineReason.NO_PROGRAMS())
    if web is not None and not web.can_cancel:
        said.append(EngineReason.NO_CANCEL())
    if clock_s is not None and abs(clock_s) > CLOCKS_APART_S:
        code = EngineReason.CLOCK_AHEAD if clock_s > 0 else EngineReason.CLOCK_BEHIND
        said.append(code(seconds=abs(clock_s)))
    return [remark for remark in said if remark]
