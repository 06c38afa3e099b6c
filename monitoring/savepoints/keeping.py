"""What becomes of completed savepoints: pinned, noted, kept by the job's retention, or disposed of.

A disposal is decided with the job's row locked and never while a restart of the job is open: a restart opens by moving
the same row, and restores only what is COMPLETED, so it never takes up a savepoint that is going.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from monitoring import audit
from monitoring.models import Job, RestartAttempt, Savepoint, SavepointOrigin, SavepointState
from monitoring.models.recovery import ENDED
from monitoring.savepoints.history import plain_path
from monitoring.savepoints.retention import Held, Policy, Verdict, judge, newest_good, outlasted, protected

NOTE_LIMIT = 2000
MOST_KEPT = 10_000
SHORTEST_S = 3600
LONGEST_S = 10 * 365 * 86_400


class NotDisposable(Exception):
    """The savepoint stays; the message says why."""


class BadNote(ValueError):
    """A note that is too long; the message says how long it may be."""


def policy_of(job: Job) -> Policy:
    age = job.savepoints_kept_s
    return Policy(job.savepoints_kept, None if age is None else timedelta(seconds=age))


def verdicts(job: Job, now: datetime) -> list[Verdict]:
    """What the job's retention would do now, savepoint by savepoint, the newest first. Changes nothing."""
    return judge(_held(_completed([job.pk])), policy_of(job), now)


@transaction.atomic
def pin(savepoint: Savepoint, pinned: bool, note: str, by: str) -> None:
    """Raises BadNote."""
    note = note.strip()
    if len(note) > NOTE_LIMIT:
        raise BadNote(f"The note has {len(note)} characters: at most {NOTE_LIMIT} are kept.")
    Savepoint.objects.filter(pk=savepoint.pk).update(pinned=pinned, note=note)
    was = {"pinned": savepoint.pinned, "note": savepoint.note}
    changes = {"savepoint": savepoint.pk, "was": was, "now": {"pinned": pinned, "note": note}}
    audit.record(by, "savepoint.keep", f"job {savepoint.job.name}", note, **changes)


@transaction.atomic
def dispose(savepoint: Savepoint, why: str, by: str, now: datetime) -> None:
    """Have its files removed, whatever the retention says. Raises NotDisposable for one that is protected."""
    job = Job.objects.select_for_update().get(pk=savepoint.job_id)
    if reason := why_it_stays(savepoint):
        raise NotDisposable(reason)
    _begin([savepoint.pk], job, {savepoint.pk: why}, by, now)


def why_it_stays(savepoint: Savepoint) -> str:
    """Why nobody may dispose of it now, in a sentence; "" when a person may."""
    of_job = _held(_completed([savepoint.job_id]))
    held = next((each for each in of_job if each.key == savepoint.pk), None)
    if held is None:
        return _("It is no completed savepoint (any more).")
    if attempt := _open_attempt(savepoint.job_id):
        return _("Restart %(epoch)s of the job is under way: until it has ended, nothing goes.") % {
            "epoch": attempt.epoch
        }
    reason = protected(held, newest_good(of_job))
    return _("It stays: %(reason)s.") % {"reason": reason} if reason else ""


def apply_retention(now: datetime) -> int:
    """Begin to dispose of what every job's retention lets go; returns how many savepoints."""
    with_policy = Job.objects.filter(Q(savepoints_kept__isnull=False) | Q(savepoints_kept_s__isnull=False))
    grouped: dict[int, list[Savepoint]] = defaultdict(list)
    for savepoint in _completed(with_policy.values_list("pk", flat=True)):
        grouped[savepoint.job_id].append(savepoint)
    going = [
        job_id
        for job_id, savepoints in grouped.items()
        if outlasted(judge(_held(savepoints), policy_of(savepoints[0].job), now))
    ]
    return sum(_apply(job_id, now) for job_id in going)


@transaction.atomic
def _apply(job_id: int, now: datetime) -> int:
    job = Job.objects.select_for_update().get(pk=job_id)
    if _open_attempt(job_id):
        return 0
    found = verdicts(job, now)
    going = [held.key for held in outlasted(found)]
    _begin(going, job, {verdict.held.key: verdict.why for verdict in found}, audit.AUTOMATION, now)
    return len(going)


def _open_attempt(job_id: int) -> RestartAttempt | None:
    return RestartAttempt.objects.filter(job=job_id).exclude(state__in=ENDED).first()


def _begin(going: Iterable[int], job: Job, why: dict[int, str], by: str, now: datetime) -> None:
    for key in going:
        Savepoint.objects.filter(pk=key, state=SavepointState.COMPLETED).update(
            state=SavepointState.DISPOSING,
            disposal_reason=why[key],
            disposal_request="",
            disposal_tries=0,
            next_check_at=now,
            failure="",
        )
        audit.record(by, "savepoint.dispose", f"job {job.name}", why[key], savepoint=key)


def _completed(jobs: Iterable[int]) -> list[Savepoint]:
    rows = Savepoint.objects.filter(job__in=jobs, state=SavepointState.COMPLETED).exclude(path="")
    return list(rows.select_related("job__current_run", "checkpoint"))


def _held(savepoints: Iterable[Savepoint]) -> list[Held]:
    return [_as_held(savepoint) for savepoint in savepoints]


def _as_held(savepoint: Savepoint) -> Held:
    run, checkpoint = savepoint.job.current_run, savepoint.checkpoint
    return Held(
        key=savepoint.pk,
        taken_at=checkpoint.triggered_at if checkpoint else savepoint.requested_at,
        origin=SavepointOrigin(savepoint.origin),
        good=not savepoint.problem and not (checkpoint and checkpoint.discarded),
        pinned=savepoint.pinned,
        live_run_came_from_it=run is not None and plain_path(run.restored_path) == plain_path(savepoint.path),
    )
