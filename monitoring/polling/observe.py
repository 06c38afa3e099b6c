"""Read one cluster. This module stores nothing, raises no errors of the engine, and ends within its time limit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from typing import Any, ParamSpec, TypeVar

from monitoring.engine.answers import (
    TERMINAL_STATES,
    Checkpoints,
    CheckpointStats,
    JobOverview,
    ManagerConfig,
    OperatorSubtasks,
    Overview,
    Vertex,
)
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, NotFound, NotReady, Unreachable
from monitoring.engine.evidence import Answered, NoAnswer, shows_no_manager
from monitoring.engine.identity import identity_of, other_cluster_reason, same
from monitoring.models import CheckpointStatus, RunState
from monitoring.polling import plan
from monitoring.polling.known import KnownCluster, KnownRun, Stored, StoredAnswer
from monitoring.polling.observation import CheckpointReading, ClusterObservation, RunObservation
from monitoring.polling.runs import job_name
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

FLIGHT_LIMIT_S = 25.0
# Due runs are read first. Then, within these limits, figures of single checkpoints are read, newest first. So a backlog
# after the first poll or an outage never delays live runs.
FIGURES_FOR_S = 3.0
READINGS_PER_FLIGHT = 200
# The maximum number of runs that are not due and are read only for figures. It limits the runs whose last list of
# checkpoints is no longer in memory.
BACKLOG_RUNS = 20

P = ParamSpec("P")
T = TypeVar("T")
Lookup = Callable[[AbstractSet[str]], Awaitable[Stored]]


async def _knows_none(_: AbstractSet[str]) -> Stored:
    return Stored()


async def observe(
    client: FlinkClient,
    known: KnownCluster,
    now: datetime,
    lookup: Lookup = _knows_none,
    limit_s: float = FLIGHT_LIMIT_S,
    *,
    at_once: int = 8,
) -> ClusterObservation:
    """Read the list of jobs, and for each due run everything that is not finally stored yet.

    `lookup` returns the rows of engine job IDs that are not in `known`. `at_once`: the number of concurrent requests.
    """
    try:
        overview = await _overview(client) if known.needs_version else None
        jobs, misread = await client.jobs_by_id(known.jobs)
        stored = await lookup(jobs.keys() - known.runs.keys())
        known = replace(known, runs={**known.runs, **stored.runs}, starts=stored.starts)
        manager = await _manager(client, known) if known.needs_version or known.differs_from(jobs) else None
    except EngineError as error:
        return ClusterObservation(NoAnswer(error.reason, is_silence=shows_no_manager(error)), known)
    found = identity_of(manager.settings) if manager else None
    if known.identity and found and not same(known.identity, found):
        answer = NoAnswer(other_cluster_reason(client.url, known.identity, found))
        return ClusterObservation(answer, known, stranger=found)
    readers = _readers(client, known, jobs, now)
    missing = frozenset(known.expected() - jobs.keys())
    undenied: dict[str, Reason | str] = {}
    runs = await _read(readers, _denials(client, known, missing, undenied), at_once, limit_s)
    problem = misread[0].reason if misread else ""
    return ClusterObservation(Answered(jobs, undenied), known, overview, manager, runs, missing, problem=problem)


async def read_whole(
    client: FlinkClient,
    jobs: Mapping[str, JobOverview],
    known: Mapping[str, KnownRun],
    now: datetime,
    *,
    at_once: int,
    limit_s: float,
) -> dict[str, RunObservation]:
    """Read everything about these jobs that is not finally stored, whether they are due or not."""
    tick = _Tick(None, now)
    readers = [_RunReader(client, job, known.get(job.id), _NO_ANSWER, tick, due=True) for job in jobs.values()]
    return await _read(readers, [], at_once, limit_s)


async def _read(
    readers: Collection[_RunReader], before: Iterable[Callable[[], Awaitable[None]]], at_once: int, limit_s: float
) -> dict[str, RunObservation]:
    """Execute the requests `before`, and read the runs. Return those that have changes, by engine job ID."""
    try:
        async with asyncio.timeout(limit_s):
            await together([*before, *(reader.read for reader in readers)], at_once)
            await _read_figures(readers, at_once)
    except TimeoutError:
        for reader in readers:
            reader.cut_off(limit_s)
    return {reader.job.id: reader.observation() for reader in readers if reader.has_changes}


async def _overview(client: FlinkClient) -> Overview | None:
    """Return the overview, or None if it cannot be parsed: monitoring works without the version."""
    try:
        return await client.overview()
    except Malformed:
        return None


async def _manager(client: FlinkClient, known: KnownCluster) -> ManagerConfig | None:
    """Return the job manager's configuration, or None if the engine does not show it.

    Raise EngineError if the request fails for a cluster with a known identity: it may be another cluster.
    """
    try:
        return await client.manager_config_if_shown()
    except EngineError:
        if known.identity:
            raise
        return None


def _readers(
    client: FlinkClient, known: KnownCluster, jobs: Mapping[str, JobOverview], now: datetime
) -> list[_RunReader]:
    """Return readers of runs with something to read, live runs first: the engine keeps the data of ended runs."""
    readers: list[_RunReader] = []
    listed: list[_RunReader] = []
    unlisted: list[_RunReader] = []
    tick = _Tick(known.read_until, now)
    for job in jobs.values():
        run = known.runs.get(job.id)
        if run is None and known.starts.hide(job):
            continue
        if run is not None and job is not known.jobs.get(job.id) and job_name(job.name) != run.name:
            run = None
        due = run is None or run.due(job, known.read_until, now)
        if due or (run is not None and (run.missing or run.state != job.state)):
            readers.append(_RunReader(client, job, run, known.answers.get(job.id, _NO_ANSWER), tick, due=due))
        elif run is not None and run.has_backlog:
            reader = _RunReader(client, job, run, known.answers.get(job.id, _NO_ANSWER), tick, due=True)
            (listed if reader.uses_stored_answer() else unlisted).append(reader)
    readers.sort(key=lambda reader: reader.job.state in TERMINAL_STATES)
    return [*readers, *listed, *random.sample(unlisted, min(len(unlisted), BACKLOG_RUNS))]


def _denials(
    client: FlinkClient, known: KnownCluster, missing: Iterable[str], undenied: dict[str, Reason | str]
) -> list[Callable[[], Awaitable[None]]]:
    """Return requests that check each live run that the engine did not list.

    If the engine does not answer 404, `undenied` gets the reason why the run may still be alive.
    """

    async def ask(job_id: str) -> None:
        try:
            await client.job(job_id)
        except NotFound:
            return
        except EngineError as error:
            undenied[job_id] = error.reason
        else:
            undenied[job_id] = EngineReason.NOT_LISTED()

    return [partial(ask, job_id) for job_id in missing if known.runs[job_id].live]


async def _read_figures(readers: Iterable[_RunReader], at_once: int) -> None:
    """Read the figures of checkpoints over all runs: first those that the history no longer lists, then the newest."""
    until = asyncio.get_running_loop().time() + FIGURES_FOR_S
    wanted = [(at, reader, number) for reader in readers for number, at in reader.unread().items()]
    chosen = nlargest(READINGS_PER_FLIGHT, wanted, key=lambda each: each[0])

    async def read(reader: _RunReader, number: int) -> None:
        if asyncio.get_running_loop().time() < until:
            await reader.read_figures(number)

    await together([partial(read, reader, number) for _, reader, number in chosen], at_once)


async def together(work: Collection[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Execute all of the work, at most `at_once` pieces at a time."""
    waiting = iter(work)

    async def one_after_another() -> None:
        for each in waiting:
            await each()

    await asyncio.gather(*(one_after_another() for _ in range(min(at_once, len(work)))))


@dataclass(frozen=True, slots=True)
class _Tick:
    """The times of a poll. `since`: the time of the previous poll."""

    since: datetime | None
    now: datetime


class _RunReader:
    """Reads one run step by step. Results from before a failure or the time limit are kept."""

    def __init__(
        self,
        client: FlinkClient,
        job: JobOverview,
        known: KnownRun | None,
        stored: StoredAnswer,
        tick: _Tick,
        *,
        due: bool,
    ) -> None:
        self.job = job
        self._tick = tick
        self._client = client
        self._known = known
        self._due = due
        # If an unfinished checkpoint is not in the stored answer, the whole answer must be read.
        self._stored = stored if known is not None and known.unfinished <= stored.entries.keys() else _NO_ANSWER
        self._listed: Mapping[int, CheckpointStats] | None = None
        self._reported: dict[str, Any] = {}  # fields of the RunObservation that are known so far
        self._readings: dict[int, CheckpointReading] = {}
        self._problems: list[Reason | str] = []
        self._read = not due
        self._silent = False

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to store."""
        known = self._known
        if known is None or known.missing or known.moved(self.job) or known.next_read_at is not None or not known.live:
            return True
        return bool(self._reported or self._readings or self._problems)

    def observation(self) -> RunObservation:
        problems = tuple(dict.fromkeys(self._problems))
        problem = EngineReason.PROBLEMS(problems=problems) if problems else ""
        return RunObservation(
            self.job,
            self._due,
            listed=self._has_rows_to_write(),
            readings=self._readings,
            problem=problem,
            **self._reported,
        )

    def _has_rows_to_write(self) -> dict[int, CheckpointStats]:
        stored, listed = self._stored.entries, self._listed or {}
        return {key: entry for key, entry in listed.items() if key in self._readings or stored.get(key) is not entry}

    def uses_stored_answer(self) -> bool:
        """Prepare to read only figures, with the stored list of checkpoints. Return False if there is no such list."""
        if self._stored.digest is None:
            return False
        self._listed, self._read = self._stored.entries, True
        return True

    def cut_off(self, limit_s: float) -> None:
        if not self._read:
            self._problems.append(EngineReason.NOT_READ_TO_END(limit_s=limit_s))

    async def read(self) -> None:
        if self._read:
            return
        try:
            await self._read_run()
        except (Unreachable, NotReady) as error:
            self._stop_answering(error)
        self._read = True

    async def _read_run(self) -> None:
        """Read the run. Checkpoints are read first, because the engine forgets them soonest."""
        known, job_id = self._known, self.job.id
        stored = self._stored
        answer = await self._ask(self._client.checkpoints_unless, job_id, stored.digest, stored.entries)
        checkpoints = None if answer is None else answer[1]
        if answer is not None and checkpoints is not None:
            self._reported |= {"checkpoints": checkpoints, "digest": answer[0]}
            self._listed = {entry.id: entry for entry in checkpoints.entries}
        elif answer is not None:
            self._listed = stored.entries
        changed = known is None or known.moved(self.job) or self._restarted(checkpoints)
        if known is None or not known.vertices:
            self._reported["job_config"] = await self._ask(self._client.job_config, job_id)
        if changed or (known is not None and not known.vertices) or self.job.state == RunState.CREATED:
            detail = await self._ask(self._client.job, job_id)
            if detail is not None:
                reported = {"vertices": detail.vertices, "own_end": detail.own_end, "launch_wait": detail.launch_wait}
                self._reported |= reported | {"position": detail.position}
        if answer is not None and (changed or (known is not None and not known.has_config)):
            self._reported["config"] = await self._ask(self._client.checkpoint_config, job_id)
        if changed or self.job.state != RunState.RUNNING:
            self._reported["exceptions"] = await self._ask(self._client.exceptions, job_id)

    def _restarted(self, checkpoints: Checkpoints | None) -> bool:
        if checkpoints is None or checkpoints.restored is None or self._known is None:
            return False
        return checkpoints.restored.at != self._known.restored_at

    def unread(self) -> dict[int, datetime]:
        """Return the checkpoints whose figures must be read, with their trigger times."""
        unfinished = frozenset() if self._known is None else self._known.unfinished
        listed = self._listed
        if listed is None or self._silent or (listed is self._stored.entries and not unfinished):
            return {}
        newest = -1 if self._known is None or self._known.newest_checkpoint is None else self._known.newest_checkpoint
        wanted = {number for number in unfinished if self._shows_more(listed.get(number))}
        wanted.update(number for number in listed if number > newest)
        return {number: listed[number].triggered_at if number in listed else _SOON_FORGOTTEN for number in wanted}

    def _shows_more(self, listed: CheckpointStats | None) -> bool:
        if listed is None or listed.final:
            return True
        return plan.shows_more(self.job.id, listed.triggered_at, self._tick.since, self._tick.now)

    async def read_figures(self, number: int) -> None:
        if self._silent:
            return  # the engine did not answer a moment ago
        try:
            reading = await self._reading(number, listed=number in (self._listed or ()))
        except (Unreachable, NotReady) as error:
            self._stop_answering(error)
            return
        if reading is not None:
            self._readings[number] = reading

    def _stop_answering(self, error: EngineError) -> None:
        if not self._silent:
            self._problems.append(error.reason)
        self._silent = True

    async def _reading(self, checkpoint_id: int, *, listed: bool) -> CheckpointReading | None:
        """Return the checkpoint's details, or None if they could not be read now.

        For a checkpoint that has left the history, an unreadable answer counts as forgotten, because there may be no
        second one.
        """
        entry = self._listed.get(checkpoint_id) if self._listed else None
        read = await self._known_operators(entry)
        whole = _without_details(entry, read)
        if whole is not None:
            return whole
        try:
            stats = await self._client.checkpoint_details(self.job.id, checkpoint_id)
        except NotFound:
            return CheckpointReading(None)
        except (Unreachable, NotReady):
            raise
        except EngineError as error:
            self._problems.append(error.reason)
            return None if listed else CheckpointReading(None)
        answers = {
            vertex: (read[vertex], True) if vertex in read else await self._operator(checkpoint_id, vertex)
            for vertex in stats.tasks
        }
        operators = {vertex: answer for vertex, (answer, _) in answers.items() if answer is not None}
        return CheckpointReading(stats, operators, stats.final and all(done for _, done in answers.values()))

    async def _known_operators(self, entry: CheckpointStats | None) -> dict[str, OperatorSubtasks]:
        """Return the subtasks of the known operators of a completed, listed checkpoint.

        The result ends before the first operator that cannot be read.
        """
        operators: dict[str, OperatorSubtasks] = {}
        if entry is None or entry.status != CheckpointStatus.COMPLETED:
            return operators
        for vertex in self._vertices():
            read, _ = await self._operator(entry.id, vertex)
            if read is None:
                break
            operators[vertex] = read
        return operators

    def _vertices(self) -> Collection[str]:
        """Return the IDs of the job's operators, from this poll or from the rows."""
        reported: tuple[Vertex, ...] | None = self._reported.get("vertices")
        known = () if self._known is None else self._known.vertices
        return [vertex.id for vertex in reported] if reported else known

    async def _operator(self, checkpoint_id: int, vertex_id: str) -> tuple[OperatorSubtasks | None, bool]:
        """Return the operator's subtasks, and whether nothing more can be read."""
        try:
            return await self._client.checkpoint_subtasks(self.job.id, checkpoint_id, vertex_id), True
        except NotFound:
            # The details listed the operator a moment ago. For a live job, it is read again until the details are gone,
            # too.
            return None, self.job.state in TERMINAL_STATES
        except (Unreachable, NotReady):
            raise
        except EngineError as error:
            self._problems.append(error.reason)
            return None, False

    async def _ask(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return the answer, or None if the engine does not have it or it cannot be parsed."""
        try:
            return await call(*args, **kwargs)
        except NotFound:
            return None
        except (Unreachable, NotReady):
            raise
        except EngineError as error:
            self._problems.append(error.reason)
            return None


def _without_details(
    entry: CheckpointStats | None, operators: Mapping[str, OperatorSubtasks]
) -> CheckpointReading | None:
    """Combine the checkpoint's entry in the list with its operators, which saves a request for the details.

    Return None if operators are missing: then the details must be read.
    """
    tasks = {vertex: read.totals for vertex, read in operators.items()}
    if entry is None or not tasks or sum(totals.num_subtasks for totals in tasks.values()) != entry.totals.num_subtasks:
        return None
    return CheckpointReading(replace(entry, tasks=tasks), operators)


_NO_ANSWER = StoredAnswer()
_SOON_FORGOTTEN = datetime.max.replace(tzinfo=UTC)
