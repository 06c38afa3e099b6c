"""Whose rows an archive has that is taken up: clusters, jobs and runs by their names; what is missing is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db.models import F, Max, Q

from monitoring.history.archive.offered import OfferedRun
from monitoring.models import Cluster, Job, Run, RunState

NO_ADDRESS = "Its history was taken up from an archive; where it is to be asked is not known."
Lives = Mapping[OfferedRun, tuple[datetime, datetime]]


def found_or_made(name: str, lives: Lives, now: datetime) -> tuple[int, dict[OfferedRun, int]]:
    """The cluster's key, and those of all its runs. In the caller's transaction, which keeps polls out."""
    Cluster.objects.get_or_create(name=name, defaults={"enabled": False, "disabled_reason": NO_ADDRESS})
    cluster = Cluster.objects.select_for_update().get(name=name)
    by_job: dict[str, list[OfferedRun]] = {}
    for run in lives:
        if run.cluster == name:
            by_job.setdefault(run.job, []).append(run)
    keys: dict[OfferedRun, int] = {}
    for job_name, runs in by_job.items():
        job, _ = Job.objects.get_or_create(cluster=cluster, name=job_name)
        keys |= _runs(job, sorted(runs, key=lambda each: each.number), lives, now)
    return cluster.pk, keys


def _runs(job: Job, told: Collection[OfferedRun], lives: Lives, now: datetime) -> dict[OfferedRun, int]:
    """By the engine's id, of several with one id by the number, too; the archive's numbers count."""
    newest = {run.engine_job_id: run for run in told}
    _make_room(job, newest, min(lives[run][0] for run in told))
    known = {(run.engine_job_id, run.number): run.pk for run in job.runs.all()}
    keys = {}
    for run in told:
        key = known.get((run.engine_job_id, run.number))
        keys[run] = key or _made(job, run, *lives[run], now, superseded=newest[run.engine_job_id] is not run).pk
    return keys


def _make_room(job: Job, told: Mapping[str, OfferedRun], since: datetime) -> None:
    """Runs that the archive does not know began after it: they get numbers above its. Those that it knows get its.
    Older ones were taken up before, of days that it offers no more, and keep theirs. `since`: the first one's life."""
    numbers = [run.number for run in told.values()]
    strange = job.runs.exclude(engine_job_id__in=told)
    newer = strange.filter(Q(started_at__gte=since) | Q(number__in=numbers))
    highest = max(numbers) + (job.runs.aggregate(most=Max("number"))["most"] or 0)
    if newer.filter(number__lte=max(numbers)).exists():
        newer.update(number=F("number") + highest)
    wrong = [run for run in job.runs.filter(superseded=False) if _number_of(run, told) != run.number]
    for run in wrong:  # out of the way first: no number may be there twice
        Run.objects.filter(pk=run.pk).update(number=F("number") + 3 * highest)
    for run in wrong:
        Run.objects.filter(pk=run.pk).update(number=_number_of(run, told))


def _number_of(run: Run, told: Mapping[str, OfferedRun]) -> int:
    found = told.get(run.engine_job_id)
    return found.number if found else run.number


def _made(job: Job, told: OfferedRun, began: datetime, ended: datetime, now: datetime, *, superseded: bool) -> Run:
    """One that is over. How it ended nobody knows: as CANCELED nothing has to be done about it."""
    return Run.objects.create(
        job=job, number=told.number, engine_job_id=told.engine_job_id, state=RunState.CANCELED, observed_at=now,
        started_at=began, ended_at=ended, final_read_done=True, superseded=superseded,
    )  # fmt: skip
