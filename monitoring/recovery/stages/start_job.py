"""Starts the job, once.

1. Store the intent: the time and the number of the launch, under the ID that was set when the attempt was created.
2. Ask the engine. If another cluster answers at the address, wait. If the engine knows the ID, an earlier launch
   succeeded although its answer was lost. If another run of the job lives, by name or ID, start nothing.
3. Launch. Without an answer, or if the ID already exists, look again. Launch again only if the engine answers but has
   not known the ID for a while. Use the same ID, so that the engine refuses a second job.

The time that a launch command takes does not count towards the attempt's time limit.

In application mode the command starts another cluster, which cannot refuse a second start: it is run only once. Before
it, silence of the cluster that has ended is no obstacle. After it, the cluster that answers at the address of the job's
cluster and runs the job is accepted as the same cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring import audit
from monitoring.engine.answers import JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, NotFound, NotReady, Refused, Unreachable
from monitoring.engine.identity import Identity, identity_of, other_cluster_reason, same
from monitoring.engine.registration import confirm_same
from monitoring.engine_calls import CALL_LIMIT_S
from monitoring.models import AttemptState, RestartAttempt
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.launch_values import NotRun
from monitoring.recovery.launching import (
    BadLaunch,
    LaunchKind,
    LaunchOrder,
    StartRefused,
    check_launch,
    kind_of,
    uploaded_program,
)
from monitoring.recovery.stages.await_running import ended_unseen
from monitoring.recovery.stages.base import (
    WISHED,
    Act,
    End,
    EngineRuns,
    Next,
    Outcome,
    Wait,
    automatic,
    cluster_is_over,
    engine_runs_of,
    given_up,
    is_unattended_restore,
    jobs_of,
    launch_of,
    starts_cluster,
    write,
)
from monitoring.recovery.stages.check_state import (
    reject,
    remember_finding,
    reports_missing_path,
    reports_missing_state,
)
from monitoring.recovery.stages.prepare_program import lost

SEND_AGAIN_AFTER = timedelta(seconds=30)
MOST_LAUNCHES = 3
# The message of Flink and of Waymark's job manager for a missing program.
_NO_PROGRAM = re.compile(r"Jar file .+ does not exist")


@dataclass(frozen=True)
class Known:
    """The engine knows the run that the attempt started. `identity`: that of its cluster, if it is another one."""

    job: JobOverview
    identity: Identity | None = None


@dataclass(frozen=True)
class OtherRun:
    """Another run of the job was started after the end of the old one: it is live, or had an intended end."""

    job: JobOverview


@dataclass(frozen=True)
class OldRunEndedAgain:
    """The run whose end caused the attempt came back and ended again."""


@dataclass(frozen=True)
class Launched:
    job_id: str


@dataclass(frozen=True)
class Unclear:
    """The launch was sent, but `why` prevents knowing whether it started the job."""

    why: EngineError


@dataclass(frozen=True)
class NotSeen:
    """The engine does not know the ID of the launch (yet)."""


@dataclass(frozen=True)
class Hindered:
    """The job cannot be launched or looked for now: `why`, such as another cluster at the address of the job's cluster.

    `withheld`: the launch was due but not sent.
    """

    why: Reason | str
    withheld: bool


class StartJob:
    step = _("Start the job")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if not attempt.restore_path and not attempt.start_empty:
            return End(AttemptState.FAILED, Why.NO_STATE_TO_RESTORE())
        if attempt.launch_sent_at is None and (stopped := given_up(attempt, now)):
            return stopped
        try:
            check_launch(launch_of(attempt))
        except BadLaunch as problem:
            return End(AttemptState.FAILED, problem.reason)
        send = _may_send(attempt, now)
        if send:
            write(attempt, launch_sent_at=now, launches=attempt.launches + 1)
        return _act(attempt, send)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Launched(job_id):
                return _launched(attempt, job_id, now)
            case Unclear(why):
                # From now on the stage looks for the job. `error` keeps the launch's error, if the job never appears.
                found = {"deadline_at": _deadline(attempt, now), **columns("error", why.reason)}
                write(attempt, **({} if starts_cluster(attempt) else {"launch_sent_at": now}), **found)
                return _search_description(attempt, why)
            case Known(job, identity):
                return _found(attempt, job, identity, now)
            case OtherRun(job):
                return End(AttemptState.CANCELED, _by_another(job))
            case OldRunEndedAgain():
                return End(AttemptState.CANCELED, Why.DIED_AGAIN())
            case Hindered():
                return _hindered(attempt, answer, now)
            case NotSeen():
                return _not_seen(attempt, now)
            case NotFound():
                return End(AttemptState.FAILED, Why.PROGRAM_GONE(answer=answer.reason))
            case Refused(is_request_invalid=True):
                # The engine refused the launch, so it has not started the job.
                write(attempt, deadline_at=_deadline(attempt, now), launch_sent_at=None)
                return _refused(attempt, answer, now)
            case EngineError():
                return _search_description(attempt, answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to a launch")


def _launched(attempt: RestartAttempt, job_id: str, now: datetime) -> Outcome:
    if starts_cluster(attempt):
        deadline = max(_deadline(attempt, now), now + TIME_LIMIT)
        write(attempt, engine_job_id=job_id, deadline_at=deadline)
        return Wait(Why.CLUSTER_STARTING(id=job_id))
    write(attempt, launched_at=now, engine_job_id=job_id, deadline_at=_deadline(attempt, now))
    return Next(AttemptState.WAITING, Why.STARTED(id=job_id, how=_from(attempt)))


def _found(attempt: RestartAttempt, job: JobOverview, another: Identity | None, now: datetime) -> Outcome:
    write(attempt, launched_at=now, engine_job_id=job.id)
    if another is not None:
        why = Why.CLUSTER_ACCEPTED(epoch=attempt.epoch, job=attempt.job.name)
        confirm_same(attempt.job.cluster, audit.AUTOMATION, why, another)
    return Next(AttemptState.WAITING, Why.STARTED(id=job.id, how=_from(attempt)))


def _by_another(life: JobOverview) -> Reason:
    return (Why.OTHER_RUN_ENDED if life.state in WISHED else Why.OTHER_RUN_LIVES)(id=life.id, state=life.state)


def _deadline(attempt: RestartAttempt, now: datetime) -> datetime:
    """Return the attempt's deadline, extended by the duration of the launch."""
    return attempt.deadline_at + max(now - (attempt.launch_sent_at or now), timedelta())


def _search_description(attempt: RestartAttempt, answer: EngineError) -> Wait:
    return Wait(Why.LOOKED_FOR(id=attempt.engine_job_id, answer=answer.reason))


def _refused(attempt: RestartAttempt, refused: Refused, now: datetime) -> Outcome:
    text = refused.engine_text
    if isinstance(refused, NotRun):
        return End(AttemptState.FAILED, Why.COMMAND_NOT_RUN(why=refused.reason), nothing_runs=True)
    if reports_missing_path(text):
        remember_finding(attempt, refused.reason, now, missing=True)
    if _NO_PROGRAM.search(text):
        return _program_lost(attempt)
    if automatic(attempt):
        ids = refused.engine_job_ids if isinstance(refused, StartRefused) else ()
        started_as = (attempt.engine_job_id, *ids)
        return reject(attempt, refused.reason, now, started_as, state_gone=reports_missing_state(text))
    return End(AttemptState.FAILED, Why.START_REFUSED(how=_from(attempt), why=refused.reason), nothing_runs=True)


def _program_lost(attempt: RestartAttempt) -> Outcome:
    if attempt.launches >= MOST_LAUNCHES:
        return End(AttemptState.FAILED, Why.PROGRAM_LOST_AGAIN(count=attempt.launches), nothing_runs=True)
    return lost(attempt)


def _from(attempt: RestartAttempt) -> Reason:
    return Why.FROM_STATE(path=attempt.restore_path) if attempt.restore_path else Why.FROM_NOTHING()


def _may_send(attempt: RestartAttempt, now: datetime) -> bool:
    if attempt.launch_sent_at is None:
        return True
    launch = launch_of(attempt) or {}
    if not kind_of(launch).repeatable(launch) or starts_cluster(attempt):
        return False
    return now - attempt.launch_sent_at >= SEND_AGAIN_AFTER and attempt.launches < MOST_LAUNCHES


def _act(attempt: RestartAttempt, send: bool) -> Act:
    launch, row = launch_of(attempt) or {}, attempt.job.cluster.identity
    order = LaunchOrder(
        launch,
        attempt.engine_job_id,
        attempt.job.name,
        attempt.restore_path,
        is_automatic=is_unattended_restore(attempt),
    )
    kind, another_cluster = kind_of(launch), starts_cluster(attempt)
    look = _Look(
        engine_runs_of(attempt),
        order,
        send,
        known=Identity.from_row(row) if row else None,
        decided_by_itself=automatic(attempt),
        is_over=send and cluster_is_over(attempt),
        since=attempt.created_at if another_cluster and not send else None,
    )

    async def act(client: FlinkClient) -> object:
        try:
            found = await look.at(client)
        except EngineError as error:
            if another_cluster:
                # The job's cluster is not known to have ended yet, or the next one does not answer yet.
                return Hindered(error.reason, withheld=send)
            raise
        return await _launch(client, kind, found) if isinstance(found, LaunchOrder) else found

    return Act(act, CALL_LIMIT_S + kind.limit_s(launch))


@dataclass(frozen=True)
class _Look:
    """What is looked up before a launch (`send`), or instead of it.

    `known`: the identity of the job's cluster. `is_over`: that cluster has ended. `since`: the command has started
    another cluster since then, whose identity and job ID may differ; None: it has not.
    """

    engine_runs: EngineRuns
    order: LaunchOrder
    send: bool
    known: Identity | None
    decided_by_itself: bool
    is_over: bool
    since: datetime | None

    async def at(self, client: FlinkClient) -> object:
        """Return what the engine shows, or the order if the job must be launched now. Raise EngineError."""
        if self.is_over and await jobs_of(client, cluster_over=True) is None:
            return self.order
        stranger = None if self.known is None else await _stranger(client, self.known)
        hindered = None
        if self.known is not None and stranger is not None:
            hindered = Hindered(other_cluster_reason(client.url, self.known, stranger), withheld=self.send)
            if self.since is None or stranger.application is None:
                return hindered
        jobs = await client.jobs_overview()
        if own := self._own(jobs):
            return Known(own, stranger)
        return hindered or self._of_others(jobs)

    def _own(self, jobs: Sequence[JobOverview]) -> JobOverview | None:
        own = self.engine_runs.own(jobs)
        return own if own or self.since is None else self.engine_runs.started_since(jobs, self.since)

    def _of_others(self, jobs: Sequence[JobOverview]) -> object:
        if living := self.engine_runs.live(jobs):
            return OtherRun(living)
        if self.decided_by_itself and self.engine_runs.old_run_ended_again(jobs):
            return OldRunEndedAgain()
        if self.decided_by_itself and self.send and (ended := self.engine_runs.ended_since(jobs)):
            return OtherRun(ended)
        return replace(self.order, named=frozenset(job.id for job in jobs)) if self.send else NotSeen()


async def _launch(client: FlinkClient, kind: LaunchKind, order: LaunchOrder) -> Launched | Unclear:
    """Launch the job. Raise EngineError if nothing was started or the engine already has the ID."""
    try:
        return Launched(await kind.launch(client, order))
    except (Unreachable, NotReady, Malformed) as error:
        return Unclear(error)


async def _stranger(client: FlinkClient, known: Identity) -> Identity | None:
    """Return the identity of another cluster, None for the job's own cluster and for one without an identity."""
    config = await client.manager_config_if_shown()
    found = identity_of(config.settings) if config else None
    return found if found and not same(known, found) else None


def _hindered(attempt: RestartAttempt, answer: Hindered, now: datetime) -> Outcome:
    if not answer.withheld and (ended := ended_unseen(attempt, now)):
        return ended
    if answer.withheld and attempt.launches == 1:
        write(attempt, launch_sent_at=None, launches=0)  # the only launch request was not sent
    return Wait(Why.ENGINE_SAID(answer=answer.why))


def _not_seen(attempt: RestartAttempt, now: datetime) -> Outcome:
    if ended := ended_unseen(attempt, now):
        return ended
    if starts_cluster(attempt):
        return Wait(Why.NOT_KNOWN_YET(id=attempt.engine_job_id), timedelta(seconds=2))
    sent_at = attempt.launch_sent_at or now
    launch = launch_of(attempt) or {}
    most = MOST_LAUNCHES if kind_of(launch).repeatable(launch) else 1
    if attempt.launches >= most and now - sent_at >= SEND_AGAIN_AFTER:
        code = Why.COMMAND_RUN_IN_VAIN if uploaded_program(launch) is None else Why.START_ASKED_IN_VAIN
        why = code(times=Why.TIMES(count=attempt.launches), id=attempt.engine_job_id)
        last = stored(attempt, "error")
        return End(AttemptState.FAILED, Why.WITH_LAST_ANSWER(what=why, answer=last) if last else why)
    return Wait(Why.NOT_KNOWN_YET(id=attempt.engine_job_id), timedelta(seconds=2))
