"""Store jobs and runs. (cluster, name) identifies the job, the engine job ID the run. Each status change is a row."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Max

from monitoring import bulk
from monitoring.engine.answers import Restored
from monitoring.engine.evidence import ClusterAnswer, Missing, NoAnswer, ReportedEnd, Terminal, Unknown, evidence_of
from monitoring.launches import Launched, remember
from monitoring.models import Checkpoint, Cluster, Job, LaunchOrigin, Run, RunState, RunStateChange
from monitoring.polling.observation import ClusterObservation, RunObservation
from monitoring.reasons import columns as reasons
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.stops import was_canceled

EXCEPTIONS_KEPT = 20
# The first answer about a run that ended this long ago is complete, even if the engine's clock is wrong.
ENDED_LONG_AGO = timedelta(hours=1)
_NAME_LIMIT = 500
_CHANGING = (
    *("state", "ended_at", "missing_since", "missing_polls", "vertices", "checkpoint_config", "counts", "summary"),
    *("restored_path", "restored_checkpoint_id", "restored_is_savepoint", "restored_at", "exception", "exceptions"),
    *("outcome", "launch_wait", "position", "next_read_at", "final_read_done", "superseded"),
    *("observed_at", "moved_at", "end_seen_at"),
)

# Runs may be loaded without these columns. Then a column is stored only if this poll read it. None of them is null.
_LARGE = ("checkpoint_config", "summary", "exceptions")


@dataclass
class StoredRun:
    """A run while an observation is stored. `observed` is None if the engine does not list the run."""

    run: Run
    observed: RunObservation | None = None
    newest_checkpoint: int | None = None
    # The run began after the cluster's last answer, so nothing of it was seen before this answer.
    started_unobserved: bool = False
    # The engine's counters were reset: its job manager was replaced since the last answer.
    replaced: bool = False
    # The newest exception is new.
    has_new_failure: bool = False


@dataclass
class Runs:
    """All runs of one observation, and the changes to store at the end."""

    stored: list[StoredRun]
    events: list[Reason] = field(default_factory=list)
    changes: list[RunStateChange] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)  # runs whose pending checkpoints must be ended
    regrouped: set[int] = field(default_factory=set)  # jobs whose current run may have changed
    renamed: set[int] = field(default_factory=set)  # runs whose engine job ID now belongs to a job with another name
    before: dict[int, dict[str, object]] = field(default_factory=dict)

    def named(self) -> list[StoredRun]:
        return [each for each in self.stored if each.observed is not None]

    def move(self, run: Run, target: str, why: Reason | str, now: datetime) -> None:
        self._change(run, target, why, now)
        moved = {"run": str(run), "state": str(target)}
        self.events.append(WorkReason.RUN_MOVED_BECAUSE(**moved, why=why) if why else WorkReason.RUN_MOVED(**moved))
        run.state = target
        self.regrouped.add(run.job_id)

    def restarted(self, run: Run, how: Reason, sentence: Reason, now: datetime) -> None:
        """The engine restarted the job by itself: the state is the same again."""
        self._change(run, run.state, sentence, now)
        self.events.append(WorkReason.RUN_RESTARTED(run=str(run), why=how))

    def _change(self, run: Run, target: str, why: Reason | str, now: datetime) -> None:
        change = RunStateChange(run=run, at=now, source=run.state, target=target, **reasons.columns("why", why))
        self.changes.append(change)


def job_name(name: str) -> str:
    """Return the engine's name of the job. A name that is too long is cut and gets a digest of the whole."""
    if len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: _NAME_LIMIT - 13]}…{digest}"


def load(cluster: Cluster, observation: ClusterObservation) -> Runs:
    """Return the stored runs that changed: the engine reported news about them, or did not list them."""
    found = Runs([])
    ids = [*observation.runs, *observation.missing]
    if not ids:
        return found
    columns = _columns(observation.runs.values())
    for row in _rows(columns, ids, cluster):
        run, (name, newest_checkpoint) = bulk.loaded(Run, columns, row), row[len(columns) :]
        # Django loads other columns of the job when they are used.
        run.job = Job.from_db(DEFAULT_DB_ALIAS, ("id", "cluster_id", "name"), (run.job_id, cluster.pk, name))
        observed = observation.runs.get(run.engine_job_id)
        if observed is not None and job_name(observed.job.name) != name:
            observed = None
            found.renamed.add(run.pk)
        found.stored.append(StoredRun(run, observed, newest_checkpoint))
        found.before[run.pk] = _snapshot(run)
    return found


_LOAD = """
SELECT {columns}, job.name, newest.checkpoint_id
FROM monitoring_run run
JOIN monitoring_job job ON job.id = run.job_id
LEFT JOIN LATERAL (
    SELECT checkpoint_id FROM monitoring_checkpoint WHERE run_id = run.id ORDER BY checkpoint_id DESC LIMIT 1
) newest ON TRUE
WHERE run.engine_job_id = ANY(%s) AND job.cluster_id = %s AND NOT run.superseded
ORDER BY run.started_at
"""


def _rows(columns: Iterable[str], ids: list[str], cluster: Cluster) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_LOAD.format(columns=", ".join(f"run.{name}" for name in columns)), [ids, cluster.pk])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _columns(observed: Iterable[RunObservation]) -> tuple[str, ...]:
    """Return the columns to load, without large ones that are not needed now: loading these takes most of the time."""
    seen = list(observed)
    needed = {
        "exceptions": any(each.exceptions for each in seen),
        "checkpoint_config": any(each.config is not None for each in seen),
        "summary": False,
    }
    return tuple(name for name in bulk.columns_of(Run) if needed.get(name, True))


def redeployed(runs: Iterable[StoredRun]) -> set[int]:
    """Return the keys of runs whose engine job ID now belongs to a new run, which its start and its snapshot show.

    In application mode every deployment has the same job ID.
    """
    return {each.run.pk for each in runs if each.observed is not None and _is_redeployed(each.run, each.observed)}


def _is_redeployed(run: Run, observed: RunObservation) -> bool:
    """Return whether the job was deployed again under the same ID.

    An ended Flink job starts again only by a new deployment. A failover restores a checkpoint, or the savepoint from
    which the run started: another savepoint means a new deployment.
    """
    started = observed.job.started_at
    if not run.live and run.state != RunState.LOST:
        return run.ended_at is not None and started > run.ended_at
    restored = observed.checkpoints.restored if observed.checkpoints is not None else None
    if restored is None or not restored.is_savepoint or not run.counts:
        return False
    return started > run.started_at and restored.external_path != run.restored_path


def supersede(runs: Runs, reused: Collection[int], now: datetime) -> None:
    """End the runs whose engine job ID belongs to a new run now (`reused`: their keys)."""
    over = runs.renamed.union(reused)
    if over:
        # Store this now, because the next run will be stored with the same ID.
        Run.objects.filter(pk__in=over).update(superseded=True)
    for each in runs.stored:
        if each.run.pk in over:
            each.observed = None
            each.run.superseded = True
            each.run.final_read_done = True
            runs.ended.append(each.run)
            if each.run.live:
                each.run.ended_at = now
                runs.move(each.run, RunState.LOST, "The engine started a new run under the same job ID.", now)


def create_missing(cluster: Cluster, observation: ClusterObservation, runs: Runs, now: datetime) -> None:
    """Store jobs and runs that the engine lists for the first time, numbered in the order of their start."""
    known = {each.run.engine_job_id for each in runs.named()}
    new = sorted(
        (run for run in observation.runs.values() if run.job.id not in known), key=lambda run: run.job.started_at
    )
    if not new:
        return
    jobs = jobs_of(cluster, {job_name(run.job.name) for run in new})
    numbers = dict(
        Run.objects.filter(job__in=jobs.values()).order_by().values_list("job_id").annotate(Max("number")).distinct()
    )
    rows = []
    for observed in new:
        job = jobs[job_name(observed.job.name)]
        numbers[job.pk] = numbers.get(job.pk, 0) + 1
        rows.append(_new_run(job, numbers[job.pk], observed, now))
    Run.objects.bulk_create(rows)
    for run, observed in zip(rows, new, strict=True):
        watched = cluster.last_answer_at is not None and cluster.last_answer_at <= run.started_at
        runs.stored.append(StoredRun(run, observed, started_unobserved=watched))
        runs.before[run.pk] = _snapshot(run)
        why = reasons.columns("why", EngineReason.FIRST_SEEN())
        runs.changes.append(RunStateChange(run=run, at=now, target=run.state, **why))
        runs.events.append(WorkReason.RUN_NEW(run=str(run), state=str(run.state)))
        runs.regrouped.add(run.job_id)


def move_checkpoints(runs: Runs) -> None:
    """Give the new run of a superseded one the checkpoints that it took before it was recognised as a new run."""
    old = {each.run.engine_job_id: each.run for each in runs.stored if each.run.superseded}
    for each in runs.stored:
        before = old.get(each.run.engine_job_id)
        if before is None or each.observed is None:
            continue
        taken = Checkpoint.objects.filter(run=before, triggered_at__gte=each.run.started_at)
        if each.run.started_at <= before.started_at:
            # A copy of a watched location starts when the original did. It has only the batches that it lists.
            taken = taken.filter(triggered_at__in=[stats.triggered_at for stats in each.observed.listed.values()])
        taken.update(run=each.run)


def jobs_of(cluster: Cluster, names: Collection[str]) -> dict[str, Job]:
    """Return the cluster's jobs with these names, which are created if necessary."""
    jobs = {job.name: job for job in Job.objects.filter(cluster=cluster, name__in=names)}
    missing = [Job(cluster=cluster, name=name) for name in sorted(names) if name not in jobs]
    if missing:
        # `submit` may store the same job at the same time.
        Job.objects.bulk_create(missing, ignore_conflicts=True)
        jobs = {job.name: job for job in Job.objects.filter(cluster=cluster, name__in=names)}
    return jobs


def _new_run(job: Job, number: int, observed: RunObservation, now: datetime) -> Run:
    ended = RunState(observed.job.state).terminal
    long_ago = observed.job.ended_at is not None and now - observed.job.ended_at > ENDED_LONG_AGO
    return Run(
        job=job,
        number=number,
        engine_job_id=observed.job.id,
        state=observed.job.state,
        observed_at=now,
        started_at=observed.job.started_at,
        ended_at=observed.job.ended_at,
        end_seen_at=now if ended and not long_ago else None,
    )


def apply_evidence(cluster: Cluster, answer: ClusterAnswer, runs: Runs, now: datetime) -> None:
    """Apply the answer to each run: its status, or its hold-down, loss or end if the engine does not list it."""
    for each in runs.stored:
        run = each.run
        if run.superseded:
            continue
        if each.observed is not None:
            run.observed_at = now
            each.has_new_failure = _remember_exceptions(each.observed, run)
            _named(runs, answer, each.observed, run, now)
        elif run.live:
            if run.missing_since is None:
                # All earlier answers listed the run.
                run.observed_at = run.seen_at(cluster.last_answer_at)
            _not_named(runs, answer, run, cluster, now)
        else:
            # The run has ended and the engine has forgotten it, so nothing more can be read.
            run.final_read_done = True
            runs.ended.append(run)


def _named(runs: Runs, answer: ClusterAnswer, observed: RunObservation, run: Run, now: datetime) -> None:
    run.missing_since, run.missing_polls = None, 0
    state = observed.job.state
    if state == run.state and not _has_ended_again(run, observed):
        return
    revived = RunState(run.state).terminal
    run.launch_wait = {}  # the reason for the wait belonged to the previous status
    runs.move(run, state, _why(answer, observed, run, revived=revived), now)
    if RunState(state).terminal:
        run.ended_at, run.end_seen_at = observed.job.ended_at or now, now
    elif revived:
        run.ended_at = run.end_seen_at = None
    run.final_read_done = False


def _has_ended_again(run: Run, observed: RunObservation) -> bool:
    """Return whether the run came back and ended again between two polls: its end is later than the stored one."""
    at = observed.job.ended_at
    return RunState(run.state).terminal and at is not None and run.ended_at is not None and at > run.ended_at


def _why(answer: ClusterAnswer, observed: RunObservation, run: Run, *, revived: bool) -> Reason | str:
    state = observed.job.state
    if isinstance(answer, NoAnswer):
        return answer.ends[run.engine_job_id].why
    if revived and RunState(state).terminal:
        return EngineReason.ENDED_AGAIN()
    if revived:
        return EngineReason.NAMED_AGAIN()
    if state in (RunState.FAILED, RunState.FAILING, RunState.RESTARTING) and observed.exceptions:
        return run.exception
    return ""


def _not_named(runs: Runs, answer: ClusterAnswer, run: Run, cluster: Cluster, now: datetime) -> None:
    held = None if run.missing_since is None else Missing(run.missing_since, run.missing_polls)
    run.missing_since, run.missing_polls = None, 0
    match evidence_of(run.engine_job_id, answer, held, now):
        case Unknown(missing, lost, why):
            run.missing_since, run.missing_polls = missing.since, missing.polls
            if lost and was_canceled(run, cluster):
                _end_unread(runs, run, RunState.CANCELED, missing.since, EngineReason.CANCELED(), now)
            elif lost:
                _end_unread(runs, run, RunState.LOST, missing.since, why, now)
        case Terminal(reported=ReportedEnd() as end):
            _remember_reported(end, run)
            _end_unread(runs, run, end.state, end.at, end.why, now)


def _end_unread(runs: Runs, run: Run, state: str, at: datetime, why: Reason, now: datetime) -> None:
    """End a run about which nothing more can be read."""
    run.ended_at, run.end_seen_at = at, now
    run.final_read_done = True
    runs.ended.append(run)
    runs.move(run, state, why, now)


def _remember_reported(end: ReportedEnd, run: Run) -> None:
    """Store the platform's error as the run's exception if the engine has reported none."""
    if end.error and not run.exceptions:
        run.exception, run.exceptions = end.error, end.exceptions


def _remember_exceptions(observed: RunObservation, run: Run) -> bool:
    """Add new exceptions to the run's; return whether there is a newer one.

    The engine keeps few exceptions and loses them with its job manager, so known ones are kept.
    """
    if not observed.exceptions:
        return False
    newest_before = run.exceptions[0] if run.exceptions else None
    kept = {(one["at"], one["name"], one["task"]): one for one in run.exceptions}
    kept |= {(one["at"], one["name"], one["task"]): one for one in (each.as_row() for each in observed.exceptions)}
    run.exceptions = sorted(kept.values(), key=lambda one: datetime.fromisoformat(one["at"]), reverse=True)
    del run.exceptions[EXCEPTIONS_KEPT:]
    newest = run.exceptions[0]
    # A Java exception's class adds little to its message, but a Python exception's message may be a bare value.
    run.exception = newest["message"] if "." in newest["name"] else f"{newest['name']}: {newest['message']}"
    return newest_before is None or newest["at"] != newest_before["at"]


def remember_answers(runs: Runs, now: datetime) -> None:
    """Set what was read of the runs, and whether they must be read again soon."""
    for each in runs.named():
        run, observed = each.run, each.observed
        if observed is None or not observed.due:
            continue
        if observed.vertices is not None:
            run.launch_wait = {} if observed.launch_wait is None else observed.launch_wait.as_row()
        if observed.position is not None:
            run.position = observed.position.as_row()
        if observed.vertices:
            run.vertices = [vertex.as_row() for vertex in observed.vertices]
        if observed.own_end is not None:
            run.outcome = observed.own_end.as_row()
        if observed.config is not None:
            run.checkpoint_config = dict(observed.config.raw)
        if observed.checkpoints is not None:
            _store_restore(runs, run, observed.checkpoints.restored, now)
        if each.has_new_failure:
            _remember_restart(runs, run, observed.job.moved_at, now)
        if observed.checkpoints is not None:
            counts = observed.checkpoints.counts
            each.replaced = counts.total < run.counts.get("total", 0)
            run.counts, run.summary = counts.as_row(), {k: dict(v) for k, v in observed.checkpoints.summary.items()}
        run.next_read_at = now if observed.problem and run.live else None
        if not observed.problem:
            run.moved_at = observed.job.moved_at


def _store_restore(runs: Runs, run: Run, restored: Restored | None, now: datetime) -> None:
    """Record a restart that the engine did between two polls: only the restore shows it."""
    if restored is None or restored.at == run.restored_at:
        return
    read_before = bool(run.counts)
    if read_before and not any(change.run is run for change in runs.changes):
        code = (
            EngineReason.RESTARTED_FROM_SAVEPOINT if restored.is_savepoint else EngineReason.RESTARTED_FROM_CHECKPOINT
        )
        how = code(number=restored.id)
        runs.restarted(run, how, SavepointReason.SENTENCE(clause=how), now)
    run.restored_checkpoint_id, run.restored_at = restored.id, restored.at
    run.restored_path, run.restored_is_savepoint = restored.external_path, restored.is_savepoint


def _remember_restart(runs: Runs, run: Run, moved_at: datetime | None, now: datetime) -> None:
    """Record a restart without a restored checkpoint, from local state or without state.

    Only its exception shows the restart.
    """
    came_back = moved_at is not None and moved_at >= datetime.fromisoformat(run.exceptions[0]["at"])
    if run.counts and run.state == RunState.RUNNING and came_back and all(c.run is not run for c in runs.changes):
        how = EngineReason.RESTARTED_AFTER(cause=run.exception)
        runs.restarted(run, how, how, now)


def save(runs: Runs) -> None:
    """Store the changed runs with one statement, their status changes, and the jobs' current runs."""
    columns: set[str] = set()
    changed = []
    for each in runs.stored:
        before, after = runs.before[each.run.pk], _snapshot(each.run)
        if before != after:
            changed.append({"id": each.run.pk, **after})
            columns |= {column for column, value in after.items() if column not in before or before[column] != value}
    bulk.update(Run, changed, sorted(columns), kept=_LARGE)
    if runs.changes:
        RunStateChange.objects.bulk_create(runs.changes)
    _choose_current(runs)


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def _choose_current(runs: Runs) -> None:
    """Set each job's current run: the newest live run, or else the newest run.

    Waymark may find older runs of a watched query after newer ones, so there the start decides. Elsewhere the clock of
    the engine may have been set back, so the order in which the runs were found decides.
    """
    if not runs.regrouped:
        return
    best: dict[int, Run] = {}
    found = Run.objects.filter(job__in=runs.regrouped).select_related("job__cluster").order_by("number")
    for run in sorted(found, key=lambda run: run.started_at if run.job.cluster.only_watched else _LONG_AGO):
        if run.live or run.job_id not in best or not best[run.job_id].live:
            best[run.job_id] = run
    jobs = [run.job for run in best.values() if run.job.current_run_id != run.pk]
    for job in jobs:
        job.current_run = best[job.pk]
    Job.objects.bulk_update(jobs, ["current_run"])


def remember_launches(runs: Iterable[StoredRun], now: datetime) -> None:
    """Store how Waymark's job manager started the jobs, as their launch records for a restart."""
    reported = [
        Launched(each.run, {"kind": "waymark", **each.observed.job_config.launch})
        for each in runs
        if each.observed is not None and each.observed.job_config is not None and each.observed.job_config.launch
    ]
    if not reported:
        return
    known = dict(Job.objects.filter(pk__in=[each.run.job_id for each in reported]).values_list("pk", "launch"))
    launched = [each for each in reported if known[each.run.job_id] != each.spec or each.run.launch_version_id is None]
    if launched:
        remember(launched, LaunchOrigin.FOUND, "", now)


def _snapshot(run: Run) -> dict[str, object]:
    """Return the run's changeable columns that are loaded or were set."""
    loaded = run.__dict__
    return {column: loaded[column] for column in _CHANGING if column in loaded}
