"""Keep the history's pipeline running as a job of the embedded job manager, if WAYMARK_HISTORY_PIPELINE is on.

Waymark submits the job, starts it again after somebody stopped it, and restarts it from its newest state after an
upgrade changed its program. Otherwise it is a normal job: it is polled, rules watch it, and recovery/ restarts it after
a failure. While the automation is paused, for everything or for this job, this module does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar, assert_never

from django.conf import settings

from checkpointing.ids import stable_id
from monitoring import audit
from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine.registration import EMBEDDED
from monitoring.engine_calls import Call, call_all
from monitoring.history.packing import ENTRY_CLASS, FILE_NAME, keep_database_file, packed, place
from monitoring.models import AttemptState, Cluster, Job, RestartAttempt, RestartTrigger, RunState
from monitoring.models.recovery import ENDED
from monitoring.pauses import pause_reason
from monitoring.programs import copy_of, keep
from monitoring.reasons.columns import stored
from monitoring.reasons.health import HealthReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.launching import BadLaunch, uploaded_program
from monitoring.recovery.manual import RestartRefused, change_and_restart

T = TypeVar("T")

NAME = "Waymark history"
# The wait after a failed restart.
AGAIN_AFTER = timedelta(minutes=10)
# A start takes long on a machine that starts everything at the same time.
SLOWEST_START = timedelta(minutes=5)

CONFIGURATION = {
    # The job works once a minute, and its data is in Python workers. So it gets the smallest heap that Spark accepts,
    # whose unused part the JVM returns, and one compiler instead of two.
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xms64m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20",
    "execution.checkpointing.interval": "5 min",
    "execution.checkpointing.timeout": "10 min",
    "execution.checkpointing.tolerable-failed-checkpoints": "3",
    "execution.checkpointing.num-retained": "2",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "exponential-delay",
}
SAVEPOINTS_KEPT = 2
_STARTING = frozenset(("INITIALIZING", "CREATED", "RESTARTING", "RECONCILING"))


@dataclass(frozen=True)
class Facts:
    """The facts for a decision. `state` is None if the job has never run.

    `up_to_date`: the job was started with the program in this version of Waymark.
    """

    wanted: bool
    reachable: bool
    state: RunState | None
    up_to_date: bool
    attempt_open: bool
    recent_failure: Reason | None
    paused: Reason | None


@dataclass(frozen=True)
class Submit: ...


@dataclass(frozen=True)
class RestoreOld:
    state: RunState


@dataclass(frozen=True)
class Upgrade: ...


@dataclass(frozen=True)
class Cancel: ...


@dataclass(frozen=True)
class Leave:
    reason: Reason


Decision = Submit | RestoreOld | Upgrade | Cancel | Leave


def decide(facts: Facts) -> Decision:
    """Decide what to do. Recovery, with its budget and breaker, handles a job that is FAILED or LOST.

    A FAILED job with an older program is upgraded: that program may not read what the present one stored.
    """
    if not facts.reachable:
        return Leave(WorkReason.PIPELINE_SILENT())
    if facts.attempt_open:
        return Leave(WorkReason.PIPELINE_RESTARTING())
    if facts.paused:
        return Leave(facts.paused)
    match facts.state:
        case None:
            return Submit() if facts.wanted else Leave(WorkReason.PIPELINE_OFF())
        case RunState.CANCELED | RunState.FINISHED if not facts.wanted:
            return Leave(WorkReason.PIPELINE_OFF())
        case RunState.FAILED if facts.wanted and not facts.up_to_date:
            return Leave(facts.recent_failure) if facts.recent_failure else Upgrade()
        case RunState.FAILED | RunState.LOST:
            return Leave(WorkReason.PIPELINE_DEAD())
        case _ if not facts.wanted:
            return Cancel() if facts.state is not RunState.CANCELLING else Leave(WorkReason.PIPELINE_STOPPING())
        case _ if facts.recent_failure:
            return Leave(facts.recent_failure)
        case RunState.CANCELED | RunState.FINISHED:
            return RestoreOld(facts.state)
        case RunState.RUNNING if not facts.up_to_date:
            return Upgrade()
        case _:
            return Leave(WorkReason.PIPELINE_AS_WANTED())


def keep_running(now: datetime) -> CycleReport | None:
    """Run one cycle: read the facts, decide, and act."""
    cluster = Cluster.objects.filter(name=EMBEDDED).first() if settings.EMBEDDED_CLUSTER_URL else None
    if cluster is None:
        return None
    if settings.HISTORY_PIPELINE:
        keep_database_file(place())
    job = _job(cluster)
    decision = decide(_facts(cluster, job, now))
    try:
        return _act(decision, cluster, job, now)
    except (AttemptOpen, BadLaunch, RestartRefused, EngineError) as problem:
        return CycleReport(left=(WorkReason.PIPELINE_NOT_CHANGED(problem=problem.reason),))


def why_not_running(now: datetime) -> Reason | None:
    """Return why the pipeline does not run. None: it runs, may still be starting, or is turned off."""
    cluster = Cluster.objects.filter(name=EMBEDDED).first() if settings.HISTORY_PIPELINE else None
    if cluster is None or not cluster.reachable:
        return None  # an unreachable cluster is a separate finding
    job = _job(cluster)
    run = job.current_run if job else None
    if job is None or run is None:
        begun = max(cluster.created_at, job.created_at) if job else cluster.created_at
        return None if now - begun < SLOWEST_START else HealthReason.PIPELINE_NEVER_STARTED()
    since = run.end_seen_at or run.started_at
    if run.state == RunState.RUNNING or (now - since < SLOWEST_START and run.state in _STARTING):
        return None
    if pause := pause_reason(job, now):
        return HealthReason.PIPELINE_IS_PAUSED(state=run.state, pause=pause)
    if run.exception:
        return HealthReason.PIPELINE_IS_BECAUSE(state=run.state, why=run.exception)
    return HealthReason.PIPELINE_IS(state=run.state)


def _job(cluster: Cluster) -> Job | None:
    return Job.objects.filter(cluster=cluster, name=NAME).select_related("cluster", "current_run").first()


def _facts(cluster: Cluster, job: Job | None, now: datetime) -> Facts:
    run = job.current_run if job else None
    last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first() if job else None
    return Facts(
        wanted=settings.HISTORY_PIPELINE,
        reachable=cluster.reachable and cluster.last_answer_at is not None,
        state=RunState(run.state) if run else None,
        up_to_date=job is not None and _has_program(job),
        attempt_open=last is not None and last.state not in ENDED,
        recent_failure=_recent_failure(last, now),
        paused=pause_reason(job, now) if job else None,
    )


def _has_program(job: Job) -> bool:
    copy = copy_of(job.cluster, uploaded_program(job.launch)) if job.launch else None
    # Without a copy a comparison is not possible. programs.copy_missing_programs makes the copy within half a minute.
    return copy is None or copy.sha256 == hashlib.sha256(packed()).hexdigest()


def _recent_failure(last: RestartAttempt | None, now: datetime) -> Reason | None:
    if last is None or last.state == AttemptState.SUCCEEDED or now - last.created_at > AGAIN_AFTER:
        return None
    return WorkReason.PIPELINE_RESTART_FAILED(epoch=last.epoch, why=stored(last, "error"))


def _act(decision: Decision, cluster: Cluster, job: Job | None, now: datetime) -> CycleReport:
    match decision:
        case Leave(reason):
            return CycleReport(left=(WorkReason.NO_PIPELINE_CHANGE(why=reason),))
        case Submit():
            return _submit(cluster, now)
        case RestoreOld(state) if job is not None:
            why = RecoveryReason.HISTORY_STOPPED(job=NAME, state=state)
            attempt = open_attempt(job, RestartTrigger.AUTOMATIC, why, audit.AUTOMATION, now)
            return CycleReport((WorkReason.PIPELINE_RESTART(epoch=attempt.epoch, name=NAME, why=why),))
        case Upgrade() if job is not None:
            return _upgrade(job, now)
        case Cancel() if job is not None:
            return _cancel(job)
        case RestoreOld() | Upgrade() | Cancel():
            raise ValueError(f"{decision} needs a job, but the history job does not exist")
        case _:
            assert_never(decision)


def _submit(cluster: Cluster, now: datetime) -> CycleReport:
    """Submit the job once, but not while other jobs start: on a small machine each starting JVM uses all CPUs.

    The job's ID is derived from the installation, so that the engine refuses a second start after a lost answer.
    """
    jobs = _asked(cluster, _jobs)
    if any(job.name == NAME and job.state not in TERMINAL_STATES for job in jobs):
        return CycleReport(left=(WorkReason.PIPELINE_RUNS_ALREADY(name=NAME),))
    if starting := [job.name for job in jobs if job.state in _STARTING]:
        return CycleReport(left=(WorkReason.PIPELINE_WAITS(name=NAME, others=starting),))
    jar_id = _uploaded(cluster, now)
    launch: dict[str, object] = {
        "kind": "waymark",
        "jar_id": jar_id,
        "entry_class": ENTRY_CLASS,
        "program_args": _arguments(),
        "parallelism": None,
        "configuration": CONFIGURATION,
    }
    _look_after(cluster, launch)
    _asked(cluster, partial(_run, jar_id))
    return CycleReport((WorkReason.PIPELINE_SUBMITTED(name=NAME),))


def _arguments() -> list[str]:
    return ["--dsn-file", str(place()), "--every", f"{settings.HISTORY_EVERY_S} seconds"]


def _look_after(cluster: Cluster, launch: dict[str, object]) -> None:
    """Create the job's row with its settings. For an existing row only the launch record is updated."""
    Job.objects.update_or_create(
        cluster=cluster,
        name=NAME,
        defaults={"launch": launch},
        create_defaults={
            "launch": launch,
            "auto_restart": True,
            # The state is an offset. Without it the job computes all roll-ups again, with the same results.
            "allow_empty_start": True,
            "savepoints_kept": SAVEPOINTS_KEPT,
            "labels": {"waymark": "history"},
        },
    )


def _upgrade(job: Job, now: datetime) -> CycleReport:
    jar_id = _uploaded(job.cluster, now)
    launch = {**(job.launch or {}), "jar_id": jar_id}
    change_and_restart(job, launch, RecoveryReason.NEW_HISTORY_PROGRAM(), None, audit.AUTOMATION, now, goes_back=True)
    return CycleReport((WorkReason.PIPELINE_UPGRADED(name=NAME),))


def _cancel(job: Job) -> CycleReport:
    run = job.current_run
    if run is None:
        return CycleReport()
    _asked(job.cluster, partial(_cancelled, run.engine_job_id))
    known = {"run": run.number, "engine_job_id": run.engine_job_id}
    audit.record(audit.AUTOMATION, "job.cancel", f"job {job.name}", "WAYMARK_HISTORY_PIPELINE is off", **known)
    return CycleReport((WorkReason.PIPELINE_CANCELED(name=NAME),))


def _asked(cluster: Cluster, act: Callable[[FlinkClient], Awaitable[T]]) -> T:
    """Call the cluster's engine and return the answer. Raise EngineError."""
    (answer,) = call_all([Call(cluster, act)])
    if isinstance(answer, EngineError):
        raise answer
    return answer


def _uploaded(cluster: Cluster, now: datetime) -> str:
    jar_id = _asked(cluster, partial(_upload, packed()))
    keep(cluster, jar_id, FILE_NAME, packed(), audit.AUTOMATION, now)
    return jar_id


async def _jobs(client: FlinkClient) -> Sequence[JobOverview]:
    return await client.jobs_overview()


async def _upload(content: bytes, client: FlinkClient) -> str:
    return await client.upload_jar(FILE_NAME, content)


async def _run(jar_id: str, client: FlinkClient) -> str:
    return await client.run_jar(
        jar_id,
        job_id=stable_id("history", str(place())),
        entry_class=ENTRY_CLASS,
        program_args=_arguments(),
        configuration=CONFIGURATION,
        job_name=NAME,
    )


async def _cancelled(job_id: str, client: FlinkClient) -> None:
    await client.cancel(job_id)
