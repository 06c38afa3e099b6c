"""Read runs of a silent cluster that have ended from Flink's History Server, which serves the archives of ended jobs.

An application cluster ends with its job, often before a poll has seen the end. The archive has the same data as the
REST API had. Flink writes it only for a job that no job manager takes over. The History Server reads it later: if it
does not know a job, this proves nothing.

Deployments of a job may have the same job ID, and clusters may have the same History Server. So an archive counts only
if it belongs to the run: both have the same name, and the same start or, after a failover, a common checkpoint.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import F, Q

from monitoring.engine.answers import TERMINAL_STATES, CheckpointStats, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound
from monitoring.engine.evidence import NoAnswer, ReportedEnd
from monitoring.engine.identity import application_in
from monitoring.models import Checkpoint, Cluster, RestartAttempt, Run
from monitoring.polling import plan
from monitoring.polling.known import TERMINAL, KnownRun, named_runs
from monitoring.polling.observation import RunObservation
from monitoring.polling.observe import read_whole, together
from monitoring.polling.runs import job_name
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

# Limits of one poll. The cluster is silent, so nothing else waits for this.
RUNS_SOUGHT = 20
SOUGHT_FOR_S = 5.0
READ_FOR_S = 15.0


@dataclass(frozen=True)
class SoughtRun:
    """A run whose end is not known. `known` is None if a restart has started it and no poll has seen it.

    `started_at`: the engine's time of its start; for a run that no poll has seen, the start of the run before it.
    """

    name: str
    started_at: datetime
    known: KnownRun | None


@dataclass(frozen=True)
class Archives:
    """The runs that have ended, by engine job ID. `problem`: why the History Server could not be read, "" if it was."""

    ends: Mapping[str, ReportedEnd]
    runs: Mapping[str, RunObservation]
    problem: Reason | str = ""

    def added_to(self, answer: NoAnswer) -> NoAnswer:
        why = EngineReason.WITHOUT_ARCHIVES(why=answer.why, problem=self.problem) if self.problem else answer.why
        return NoAnswer(why, self.ends, answer.is_silence)


def sought_runs(cluster: Cluster) -> dict[str, SoughtRun]:
    """Return the runs to look up for a cluster that is silent now, by engine job ID."""
    if not plan.reads_archives(cluster.poll_interval_s, cluster.consecutive_failures):
        return {}
    current = Run.objects.filter(pk__in=cluster.jobs.values("current_run"), superseded=False)
    if application_in(cluster.identity) is None or cluster.has_ended:
        # Else a run that was seen to end is looked up, too: its archive shows that no job manager takes the job over.
        current = current.filter(~Q(state__in=TERMINAL) | Q(final_read_done=False))
    started = dict(current.values_list("engine_job_id", "started_at"))
    known = named_runs(cluster, started.keys())
    seen = {job_id: SoughtRun(run.name, started[job_id], run) for job_id, run in known.items()}
    sought = _unseen(cluster) | seen
    return dict(random.sample(list(sought.items()), min(len(sought), RUNS_SOUGHT)))


def _unseen(cluster: Cluster) -> dict[str, SoughtRun]:
    """Return the runs that the last restarts of the cluster's jobs may have started, and that no poll has seen."""
    attempts = (
        RestartAttempt.objects.filter(job__cluster=cluster, epoch=F("job__epoch"), launch_sent_at__isnull=False)
        .filter(old_run=F("job__current_run"))
        .select_related("job", "old_run")
    )
    return {
        each.engine_job_id: SoughtRun(each.job.name, each.old_run.started_at, None)
        for each in attempts
        if each.old_run is not None and each.old_run.engine_job_id != each.engine_job_id
    }


async def read_archives(
    client: FlinkClient,
    sought: Mapping[str, SoughtRun],
    now: datetime,
    has_checkpoint: Callable[[int, Mapping[int, CheckpointStats]], Awaitable[bool]],
    *,
    at_once: int,
) -> Archives:
    """Read the archives of these runs. `has_checkpoint`: whether the run with this key has one of these checkpoints."""
    problems: list[Reason | str] = []
    jobs = await _archived(client, sought, at_once, problems)
    known = {job_id: run for job_id in jobs if (run := sought[job_id].known) is not None}
    runs = await read_whole(client, jobs, known, now, at_once=at_once, limit_s=READ_FOR_S)
    proven = {job_id: run for job_id, run in runs.items() if await _is_of(sought[job_id], run, has_checkpoint)}
    ends = {job_id: _end(client.url, run.job, now) for job_id, run in proven.items()}
    return Archives(ends, proven, problems[0] if problems else "")


async def _archived(
    client: FlinkClient, sought: Mapping[str, SoughtRun], at_once: int, problems: list[Reason | str]
) -> dict[str, JobOverview]:
    """Return the ended jobs that the History Server has. Add failures to `problems`."""
    jobs: dict[str, JobOverview] = {}

    async def ask(job_id: str, run: SoughtRun) -> None:
        try:
            job = await client.archived_job(job_id)
        except NotFound:
            return
        except EngineError as error:
            problems.append(error.reason)
            return
        if job.id == job_id and job.state in TERMINAL_STATES and job_name(job.name) == run.name:
            jobs[job_id] = job

    try:
        async with asyncio.timeout(SOUGHT_FOR_S):
            await together([partial(ask, *each) for each in sought.items()], at_once)
    except TimeoutError:  # a later poll looks the others up
        problems.append(EngineReason.CALL_TOO_SLOW(url=client.url, limit_s=SOUGHT_FOR_S))
    return jobs


async def _is_of(
    sought: SoughtRun,
    read: RunObservation,
    has_checkpoint: Callable[[int, Mapping[int, CheckpointStats]], Awaitable[bool]],
) -> bool:
    """Return whether the archive is about this run and no other deployment."""
    if sought.known is None:
        return read.job.started_at > sought.started_at
    if read.job.started_at == sought.started_at:
        return True
    if read.job.started_at < sought.started_at or read.checkpoints is None:
        return False
    return await has_checkpoint(sought.known.key, {each.id: each for each in read.checkpoints.entries})


def has_checkpoint(run_key: int, listed: Mapping[int, CheckpointStats]) -> bool:
    """Return whether one of these checkpoints is stored for the run."""
    stored = Checkpoint.objects.filter(run=run_key, checkpoint_id__in=listed.keys())
    return any(listed[number].triggered_at == at for number, at in stored.values_list("checkpoint_id", "triggered_at"))


def _end(url: str, job: JobOverview, now: datetime) -> ReportedEnd:
    return ReportedEnd(job.state, job.ended_at or now, EngineReason.ARCHIVED(url=url, state=job.state))
