"""Reads one cluster. Writes nothing, raises nothing that an engine can cause, and ends within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import ParamSpec, TypeVar

from monitoring.engine.answers import CheckpointStats, JobOverview, OperatorSubtasks
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound, NotReady, Unreachable
from monitoring.engine.evidence import Answered, NoAnswer
from monitoring.models import RunState
from monitoring.polling.known import KnownCluster, KnownRun
from monitoring.polling.observation import CheckpointReading, ClusterObservation, RunObservation

# A flight ends well before its lease (claim.LEASE) does.
FLIGHT_LIMIT_S = 25.0
REQUESTS_AT_ONCE = 8
# The first sight of a long history is spread over several ticks, newest first.
READINGS_PER_RUN = 20

P = ParamSpec("P")
T = TypeVar("T")


async def observe(
    client: FlinkClient, known: KnownCluster, now: datetime, limit_s: float = FLIGHT_LIMIT_S
) -> ClusterObservation:
    """Which jobs there are, and of each run that is due everything that is not stored for good yet."""
    try:
        overview = await client.overview() if known.needs_version else None
        jobs = {job.id: job for job in await client.jobs_overview()}
    except EngineError as error:
        return ClusterObservation(NoAnswer(str(error)))
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
    readers = [_RunReader(client, slots, job, known.runs.get(job.id), now) for job in jobs.values()]
    reading = asyncio.gather(*(reader.read(limit_s) for reader in readers))
    undenied, _ = await asyncio.gather(_undenied(client, slots, known, jobs), reading)
    runs = {reader.job.id: reader.observation() for reader in readers}
    return ClusterObservation(Answered(jobs, undenied), overview, runs)


async def _undenied(
    client: FlinkClient, slots: asyncio.Semaphore, known: KnownCluster, jobs: Mapping[str, JobOverview]
) -> dict[str, str]:
    """Why runs that lived and are in no list may live still: the engine, asked, does not say that they are gone."""

    async def why(job_id: str) -> str:
        try:
            async with slots:
                await client.job(job_id)
        except NotFound:
            return ""
        except EngineError as error:
            return str(error)
        return "The engine lists the job no more, and knows it when asked."

    missing = [job_id for job_id, run in known.runs.items() if job_id not in jobs and not RunState(run.state).terminal]
    reasons = await asyncio.gather(*map(why, missing))
    return {job_id: reason for job_id, reason in zip(missing, reasons, strict=True) if reason}


class _RunReader:
    """Reads one run step by step; what was read before a failure or the time limit counts."""

    def __init__(
        self, client: FlinkClient, slots: asyncio.Semaphore, job: JobOverview, known: KnownRun | None, now: datetime
    ) -> None:
        self.job = job
        self._client = client
        self._slots = slots
        self._known = known
        self._due = known is None or known.due(job.state, job.moved_at, now)
        self._found = RunObservation(job, self._due)
        self._readings: dict[int, CheckpointReading] = {}
        self._problems: list[str] = []

    def observation(self) -> RunObservation:
        return self._with(readings=self._readings, problem="; ".join(self._problems))

    async def read(self, limit_s: float) -> None:
        if not self._due:
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._read_all()
        except TimeoutError:
            self._problems.append(f"not read to the end within {limit_s:g} s")
        except (Unreachable, NotReady) as error:
            self._problems.append(str(error))

    async def _read_all(self) -> None:
        """The checkpoints first: what the engine forgets soonest."""
        known, job_id = self._known, self.job.id
        checkpoints = await self._ask(self._client.checkpoints, job_id)
        self._found = self._with(checkpoints=checkpoints)
        restored_at = checkpoints.restored.at if checkpoints and checkpoints.restored else None
        restarted = known is not None and restored_at is not None and restored_at != known.restored_at
        moved = known is not None and known.moved(self.job.moved_at)
        changed = known is None or known.state != self.job.state or restarted or moved
        if known is None or not known.vertices:
            self._found = self._with(job_config=await self._ask(self._client.job_config, job_id))
        if changed or (known is not None and not known.vertices):
            detail = await self._ask(self._client.job, job_id)
            self._found = self._with(vertices=detail.vertices if detail else None)
        if checkpoints is not None and (changed or (known is not None and not known.has_config)):
            self._found = self._with(config=await self._ask(self._client.checkpoint_config, job_id))
        if changed or self.job.state != "RUNNING":
            self._found = self._with(exceptions=await self._ask(self._client.exceptions, job_id))
        if checkpoints is not None:
            await self._read_figures((*checkpoints.history, *checkpoints.latest))

    async def _read_figures(self, entries: tuple[CheckpointStats, ...]) -> None:
        newest = -1 if self._known is None or self._known.newest_checkpoint is None else self._known.newest_checkpoint
        unfinished = frozenset() if self._known is None else self._known.unfinished
        listed = {entry.id for entry in entries}
        wanted = {checkpoint_id for checkpoint_id in listed if checkpoint_id > newest} | unfinished
        for checkpoint_id in sorted(wanted, reverse=True)[:READINGS_PER_RUN]:
            reading = await self._reading(checkpoint_id, listed=checkpoint_id in listed)
            if reading is not None:
                self._readings[checkpoint_id] = reading

    async def _reading(self, checkpoint_id: int, *, listed: bool) -> CheckpointReading | None:
        """None: it could not be read now. One that left the history unread gets no second chance: there may be none."""
        try:
            stats = await self._call(self._client.checkpoint_details, self.job.id, checkpoint_id)
        except NotFound:
            return CheckpointReading(None)
        except (Unreachable, NotReady):
            raise
        except EngineError as error:
            self._problems.append(str(error))
            return None if listed else CheckpointReading(None)
        answers = await asyncio.gather(*(self._operator(checkpoint_id, vertex) for vertex in stats.tasks))
        operators = {vertex: read for vertex, (read, _) in zip(stats.tasks, answers, strict=True) if read is not None}
        return CheckpointReading(stats, operators, complete=stats.final and all(done for _, done in answers))

    async def _operator(self, checkpoint_id: int, vertex_id: str) -> tuple[OperatorSubtasks | None, bool]:
        """The operator's subtasks, and whether there is nothing more to ask for."""
        try:
            return await self._call(self._client.checkpoint_subtasks, self.job.id, checkpoint_id, vertex_id), True
        except NotFound:
            return None, True
        except EngineError as error:
            self._problems.append(str(error))
            return None, False

    async def _ask(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """None: the engine has nothing to say to this question, or nothing that can be understood."""
        try:
            return await self._call(call, *args, **kwargs)
        except NotFound:
            return None
        except (Unreachable, NotReady):
            raise
        except EngineError as error:
            self._problems.append(str(error))
            return None

    async def _call(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._slots:
            return await call(*args, **kwargs)

    def _with(self, **changes: object) -> RunObservation:
        return replace(self._found, **changes)  # type: ignore[arg-type]
