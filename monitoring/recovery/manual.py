"""Restarts that a person requests. An impossible restart is refused here, before anything is stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import transaction

from monitoring import audit
from monitoring.continuing import continue_watched
from monitoring.kubernetes.flink_operator import STATELESS
from monitoring.kubernetes.job_program import ProgramChange
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import (
    AttemptState,
    Cluster,
    FoundResource,
    Job,
    RestartAttempt,
    RestartTrigger,
    RunState,
    Savepoint,
    SavepointState,
)
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.candidates import State
from monitoring.recovery.evidence import may_start_cluster
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.recovery.states import known_states
from monitoring.recovery.unseen import found_checkpoints
from monitoring.savepoints.history import plain_path
from monitoring.savepoints.needed import SavepointBeingDisposed, hold
from monitoring.savepoints.storage_threads import StorageSilent, TimeLimit
from monitoring.savepoints.stored import LISTED_WITHIN_S

LONGEST_PATH = 2000
# In these states nothing was stopped or started yet.
CANCELABLE = (AttemptState.DECIDED, AttemptState.UPLOADING, AttemptState.IMPORTING, AttemptState.VALIDATING)
LONGEST_NAME = 500
STOPPED_WITH = Why.SAVEPOINT_OF_THE_STOP()
_REFUSALS = {
    "automation": Why.BAD_AUTOMATION,
    "cluster": Why.BAD_CLUSTER,
    "managed_elsewhere": Why.BAD_MANAGED_ELSEWHERE,
    "name": Why.BAD_NAME,
    "path": Why.BAD_PATH,
    "program": Why.BAD_PROGRAM,
    "savepoint": Why.BAD_SAVEPOINT,
    "state": Why.BAD_STATE,
    "stop": Why.BAD_STOP,
}


class RestartRefused(ValueError):
    """A refusal before anything was stopped or started. The reason has the field, its value, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: Reason) -> None:
        self.field = field
        self.reason = _REFUSALS[field](value=repr(value), allowed=allowed)
        super().__init__(str(self.reason))


class ClusterSilent(RestartRefused):
    """The job's cluster does not answer, and is not known to have ended. The same request may be accepted later."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__("cluster", cluster.name, Why.CLUSTER_NEEDED())


def restart_from(
    job: Job, state: Savepoint | str | None, by: str, now: datetime, stop_first: bool = True
) -> RestartAttempt:
    """Stop the job if it runs, and start it from `state`: a savepoint of the job or a path.

    With `state` None, a running job is restarted from the savepoint of its stop. `stop_first`: a running job is stopped
    with a savepoint, so that nothing is lost; otherwise it is only canceled.

    Raises:
        RestartRefused: the restart is not possible.
        BadLaunch: the launch record is invalid.
        AttemptOpen: another restart is in progress; the exception has it.
    """
    row = resource_of(job)
    require_answer(job, row)
    resource = JobResource.of(row) if row else None
    if resource is None:
        check_launch(job.launch)
    if state is None:
        _require_savepoint_on_stop(job, stop_first)
        _require_stateful(row)
        reason = Why.RESTART_ASKED(by=by, state=Why.LATEST_STATE() if resource else STOPPED_WITH)
        how: dict[str, Any] = {"stop_first": True, "from_stop": True, "resource": resource}
        return open_attempt(job, RestartTrigger.MANUAL, reason, by, now, **how)
    chosen = _of_savepoint(job, state) if isinstance(state, Savepoint) else _of_path(job, state)
    savepoint = job.savepoints.filter(pk=chosen.savepoint_row).first() if chosen and chosen.savepoint_row else None
    path = chosen.path if chosen else str(state).strip()
    return open_restart(
        job,
        Why.RESTART_ASKED(by=by, state=chosen.reason if chosen else path),
        by,
        now,
        restore_path=path,
        restore_is_savepoint=chosen.is_savepoint if chosen else None,
        restore_state_at=chosen.taken_at if chosen else None,
        savepoint=savepoint,
        stop_first=stop_first,
        resource=resource,
    )


def change_and_restart(
    job: Job,
    launch: dict[str, object],
    what: Reason,
    state: Savepoint | None,
    by: str,
    now: datetime,
    *,
    note: str = "",
    goes_back: bool = False,
) -> RestartAttempt:
    """Start the job with another launch record, for an upgrade, a rescaling or a return to an older version.

    `goes_back`: if the job does not start, another restart uses the job's own record and the same state. `state` None:
    the running job is stopped with a savepoint and restarted from it. `what` is the end of the sentence "<by> asked
    to …", and the person's `note` follows it. The job's own launch record changes only after the new run exists.
    Raises as `restart_from`.
    """
    require_own(job)
    check_launch(launch)
    goes_back = goes_back and job.launch is not None
    return _open_change(job, None, launch, what, state, by, now, note, goes_back=goes_back)


def change_through_operator(
    job: Job,
    change: ProgramChange,
    what: Reason,
    state: Savepoint | None,
    by: str,
    now: datetime,
    *,
    note: str = "",
    goes_back: bool = False,
) -> RestartAttempt:
    """Let the Flink operator replace the job with a changed program. `state` None: it uses the job's latest state.

    The resource is changed once, together with the request to redeploy the job, unless somebody has changed the same
    fields since. For `what`, `note` and `goes_back`, see `change_and_restart`. Raises as `restart_from`.
    """
    row = resource_of(job)
    if row is None:
        raise RestartRefused("managed_elsewhere", job.name, Why.OPERATOR_NEEDED())
    require_answer(job, row)
    if not change.fields:
        raise RestartRefused("program", str(JobResource.of(row)), Why.CHANGE_NEEDED())
    return _open_change(job, row, change.as_json(), what, state, by, now, note, goes_back=goes_back)


def _open_change(
    job: Job,
    row: FoundResource | None,
    launch: dict[str, object],
    what: Reason,
    state: Savepoint | None,
    by: str,
    now: datetime,
    note: str,
    *,
    goes_back: bool,
) -> RestartAttempt:
    """Open the restart with a changed program, through the operator if the job has a resource, `row`."""
    if state is None:
        _require_savepoint_on_stop(job)
        _require_stateful(row)
    chosen = None if state is None else _of_savepoint(job, state)
    latest = STOPPED_WITH if row is None else Why.LATEST_STATE()
    args = {"by": by, "what": what, "state": chosen.reason if chosen else latest}
    return open_restart(
        job,
        Why.CHANGE_ASKED_NOTED(note=note, **args) if note else Why.CHANGE_ASKED(**args),
        by,
        now,
        restore_path=chosen.path if chosen else "",
        restore_is_savepoint=True if chosen else None,
        restore_state_at=chosen.taken_at if chosen else None,
        savepoint=state,
        stop_first=True,
        from_stop=chosen is None,
        launch=launch,
        goes_back=goes_back,
        resource=JobResource.of(row) if row else None,
    )


@transaction.atomic
def clone(job: Job, name: str, launch: dict[str, object], state: Savepoint, by: str, now: datetime) -> RestartAttempt:
    """Start a new job from a savepoint of this job. This job continues unchanged.

    Raises RestartRefused for a name that is taken, and as `restart_from`.
    """
    require_own(job)
    check_launch(launch)
    chosen, name = _of_savepoint(job, state), _checked_name(name)
    if Job.objects.filter(cluster=job.cluster, name=name).exists():
        raise RestartRefused("name", name, Why.FREE_NAME_NEEDED(cluster=str(job.cluster)))
    copy = Job.objects.create(cluster=job.cluster, name=name, labels=job.labels, launch=launch)
    return open_restart(
        copy,
        Why.CLONE_ASKED(by=by, job=job.name, state=chosen.reason),
        by,
        now,
        restore_path=chosen.path,
        restore_is_savepoint=True,
        restore_state_at=chosen.taken_at,
        savepoint=state,
        launch=launch,
    )


@dataclass(frozen=True)
class Origin:
    """The state that a new job starts from: none, a savepoint or retained checkpoint at `path`, or `imports`.

    `imports` are checkpoint locations that Spark wrote, by query.
    """

    path: str = ""
    imports: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> Reason | str:
        return self.path or ", ".join(self.imports.values()) or Why.EMPTY_STATE()


@transaction.atomic
def submit(
    cluster: Cluster,
    name: str,
    launch: dict[str, object],
    origin: Origin,
    by: str,
    now: datetime,
    query_ids: Collection[str] = (),
) -> RestartAttempt:
    """Start a new job. It may reuse the name of a job that `has_nothing`, for example after a failed start.

    `query_ids`: Spark's ids of the queries at the checkpoint locations. The job continues the history of a watched one.

    Raises RestartRefused for a name that is taken, and as `restart_from`.
    """
    check_launch(launch)
    name = _checked_name(name)
    continue_watched(cluster, {name: [each.replace("-", "").lower() for each in query_ids]}, now)
    job, _ = Job.objects.get_or_create(cluster=cluster, name=name)
    require_own(job)
    if not has_nothing(job):
        raise RestartRefused("name", name, Why.FREE_NAME_NEEDED(cluster=str(cluster)))
    job.launch = launch
    job.save(update_fields=["launch"])
    return open_restart(
        job,
        Why.SUBMITTED(by=by, job=name, state=origin.reason),
        by,
        now,
        restore_path=origin.path,
        start_empty=not (origin.path or origin.imports),
        imports=dict(origin.imports),
        launch=launch,
    )


def has_nothing(job: Job) -> bool:
    """Return whether the job has no live run, and no run has left a state."""
    return not (job.current_run and job.current_run.live) and not known_states(job)


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise RestartRefused("name", name[:100], Why.NAME_NEEDED(most=LONGEST_NAME))
    return name


@transaction.atomic
def open_restart(
    job: Job,
    reason: Reason,
    by: str,
    now: datetime,
    *,
    restore_path: str,
    trigger: RestartTrigger = RestartTrigger.MANUAL,
    **options: Any,
) -> RestartAttempt:
    """Decide the restart while the savepoint at `restore_path` is protected from deletion.

    Raises:
        RestartRefused: the savepoint's files are being deleted.
    """
    try:
        hold(restore_path)
    except SavepointBeingDisposed as going:
        raise RestartRefused("savepoint", going.state.value, Why.FILES_DISPOSED()) from going
    return open_attempt(job, trigger, reason, by, now, restore_path=restore_path, **options)


def require_control(job: Job) -> None:
    if why := job.cluster.why_not_controlled:
        raise RestartRefused("cluster", job.cluster.name, why)


def require_answer(job: Job, resource: FoundResource | None) -> None:
    """Raise RestartRefused if the job cannot be restarted now. `resource`: through its operator, if it has one."""
    require_control(job)
    if job.managed_elsewhere:
        raise RestartRefused("managed_elsewhere", job.managed_elsewhere, Why.MANAGED_ELSEWHERE())
    if resource is not None:
        if not resource.source.restarts_jobs:
            who, source = str(JobResource.of(resource)), resource.source.name
            raise RestartRefused("managed_elsewhere", who, Why.OPERATED(source=source))
        return  # the operator reaches its job even if the cluster does not answer
    if not job.cluster.reachable and not may_start_cluster(job):
        raise ClusterSilent(job.cluster)


def require_own(job: Job) -> None:
    """Raise RestartRefused if the job cannot be started by Waymark itself."""
    resource = resource_of(job)
    if resource is not None:
        raise RestartRefused("managed_elsewhere", str(JobResource.of(resource)), Why.ONLY_RESTARTED())
    require_answer(job, None)


def _require_stateful(resource: FoundResource | None) -> None:
    if resource is not None and resource.state.get("upgrade_mode") == STATELESS:
        raise RestartRefused("state", STATELESS, Why.UPGRADE_MODE_NEEDED())


def continues_from_stop(job: Job) -> bool:
    """Return whether the job can be restarted from the savepoint of its stop. Only a RUNNING job can."""
    return job.current_run is not None and job.current_run.state == RunState.RUNNING


def _require_savepoint_on_stop(job: Job, stop_first: bool = True) -> None:
    if not continues_from_stop(job):
        said = job.current_run.state if job.current_run else "not known"
        raise RestartRefused("state", said, Why.CHOOSE_SAVEPOINT())
    if not stop_first:
        raise RestartRefused("stop", "cancel", Why.NOT_STOPPED_WITH_SAVEPOINT(state=STOPPED_WITH))


@transaction.atomic
def cancel_attempt(attempt: RestartAttempt, by: str, now: datetime) -> bool:
    """Cancel a restart before anything was stopped or started. Return False if it is too late."""
    early = RestartAttempt.objects.filter(pk=attempt.pk, state__in=CANCELABLE, launch_sent_at=None)
    canceled = early.update(
        state=AttemptState.CANCELED,
        ended_at=now,
        next_step_at=None,
        claimed_until=None,
        **columns("error", Why.CANCELED_BY(by=by)),
    )
    if canceled:
        audit.record(by, "restart.cancel", f"job {attempt.job.name}", attempt=attempt.pk)
    return bool(canceled)


def _of_savepoint(job: Job, savepoint: Savepoint) -> State:
    if savepoint.job_id != job.pk:
        raise RestartRefused("savepoint", str(savepoint), Why.SAVEPOINT_OF_JOB_NEEDED(job=job.name))
    if savepoint.state != SavepointState.COMPLETED or not savepoint.path:
        raise RestartRefused("savepoint", savepoint.state, Why.COMPLETED_SAVEPOINT_NEEDED())
    if savepoint.gone_at is not None:
        raise RestartRefused("savepoint", savepoint.path, Why.FILES_GONE())
    return State(
        path=savepoint.path,
        taken_at=savepoint.checkpoint.triggered_at if savepoint.checkpoint else savepoint.requested_at,
        is_savepoint=True,
        run_number=savepoint.run.number,
        checkpoint_id=savepoint.checkpoint.checkpoint_id if savepoint.checkpoint else None,
        savepoint_row=savepoint.pk,
    )


def _of_path(job: Job, path: str) -> State | None:
    """Return the known state at the path. None: Waymark does not know the path, so the cluster must check it."""
    path = path.strip()
    if not path or len(path) > LONGEST_PATH or not path.isprintable():
        raise RestartRefused("path", path[:100], Why.PATH_NEEDED())
    known = chain(known_states(job), _found_checkpoints(job))
    return next((state for state in known if plain_path(state.path) == plain_path(path)), None)


def _found_checkpoints(job: Job) -> Iterator[State]:
    """Yield the checkpoints in storage. This is slow, so it comes last and has a time limit."""
    with suppress(StorageSilent):
        yield from found_checkpoints(job, TimeLimit(LISTED_WITHIN_S))


__all__ = [
    "AttemptOpen",
    "BadLaunch",
    "Origin",
    "RestartRefused",
    "cancel_attempt",
    "change_and_restart",
    "clone",
    "continues_from_stop",
    "has_nothing",
    "restart_from",
    "submit",
]
