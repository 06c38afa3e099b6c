"""Pin completed savepoints, add notes to them, apply the jobs' retention, and start disposals.

A disposal is decided with the job's row locked and with the needs of all jobs at that time (needed.py). It is never
decided during a restart of the job, because an automatic restart chooses its snapshot later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from monitoring import audit
from monitoring.models import Job, RestartAttempt, Savepoint, SavepointOrigin, SavepointState
from monitoring.models.recovery import ENDED
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.history import plain_path
from monitoring.savepoints.needed import Need, needs
from monitoring.savepoints.retention import Policy, RetainedSavepoint, Verdict, judge, newest_good, outlasted, protected

NOTE_LIMIT = 2000
MOST_KEPT = 10_000
SHORTEST_S = 3600
LONGEST_S = 10 * 365 * 86_400
_GOING = (SavepointState.DISPOSING, SavepointState.DISPOSED)


class _Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class NotDisposable(_Refused):
    """Raised if the savepoint must stay."""


class BadNote(_Refused):
    """Raised for a note that is too long."""


class NotPinned(_Refused):
    """Raised if the savepoint's files are removed or are being removed."""


def policy_of(job: Job) -> Policy:
    age = job.savepoints_kept_s
    return Policy(job.savepoints_kept, None if age is None else timedelta(seconds=age), job.final_savepoints_kept)


def verdicts(job: Job, now: datetime) -> list[Verdict]:
    """Return what the job's retention would do now with each savepoint, newest first. Nothing is changed."""
    return judge(_held(_completed([job.pk], gone_at=None), now, ended=True), policy_of(job), now)


@transaction.atomic
def pin(savepoint: Savepoint, pinned: bool, note: str, by: str) -> None:
    """Pin or unpin the savepoint, and store the note. Raises BadNote, NotPinned."""
    note = note.strip()
    if len(note) > NOTE_LIMIT:
        raise BadNote(SavepointReason.NOTE_TOO_LONG(count=len(note), most=NOTE_LIMIT))
    _lock(savepoint.job_id)
    if pinned and Savepoint.objects.filter(pk=savepoint.pk, pinned=False, state__in=_GOING).exists():
        raise NotPinned(SavepointReason.NOT_PINNED())
    Savepoint.objects.filter(pk=savepoint.pk).update(pinned=pinned, note=note)
    was = {"pinned": savepoint.pinned, "note": savepoint.note}
    changes = {"savepoint": savepoint.pk, "was": was, "now": {"pinned": pinned, "note": note}}
    audit.record(by, "savepoint.keep", f"job {savepoint.job.name}", note, **changes)


@transaction.atomic
def dispose(savepoint: Savepoint, why: str, by: str, now: datetime) -> None:
    """Start the removal of the savepoint's files, independent of the retention. `why`: the person's text, or "".

    Raises NotDisposable if the savepoint is protected.
    """
    job = _lock(savepoint.job_id)
    if reason := retention_reason(savepoint, now):
        raise NotDisposable(reason)
    _begin([savepoint.pk], job, {savepoint.pk: why or SavepointReason.BY_HAND()}, by, now)


def retention_reason(savepoint: Savepoint, now: datetime) -> Reason | None:
    """Return why the savepoint must not be disposed of now, or None if a person may do so."""
    of_job = _held(_completed([savepoint.job_id]), now)
    held = next((each for each in of_job if each.key == savepoint.pk), None)
    if held is None:
        return SavepointReason.NOT_COMPLETED()
    if attempt := _open_attempt(savepoint.job_id):
        return SavepointReason.RESTART_UNDER_WAY(epoch=attempt.epoch)
    reason = protected(held, newest_good(of_job))
    return SavepointReason.STAYS(reason=reason) if reason else None


def apply_retention(now: datetime) -> int:
    """Start disposing of the savepoints that the retention of their jobs does not keep; return how many."""
    ends = Exists(Savepoint.objects.filter(job=OuterRef("pk"), origin=SavepointOrigin.FINAL))
    with_policy = Job.objects.filter(
        Q(savepoints_kept__isnull=False)
        | Q(savepoints_kept_s__isnull=False)
        | Q(ends, final_savepoints_kept__isnull=False)
    )
    grouped: dict[int, list[Savepoint]] = defaultdict(list)
    for savepoint in _completed(with_policy.values_list("pk", flat=True), gone_at=None):
        grouped[savepoint.job_id].append(savepoint)
    going = [
        job_id
        for job_id, savepoints in grouped.items()
        if outlasted(judge(map(_as_held, savepoints), policy_of(savepoints[0].job), now))
    ]
    return sum(_apply(job_id, now) for job_id in going)


@transaction.atomic
def _apply(job_id: int, now: datetime) -> int:
    job = _lock(job_id)
    if _open_attempt(job_id):
        return 0
    found = verdicts(job, now)
    going = [held.key for held in outlasted(found)]
    _begin(going, job, {verdict.held.key: verdict.why for verdict in found}, audit.AUTOMATION, now)
    return len(going)


def _lock(job_id: int) -> Job:
    return Job.objects.select_for_update().get(pk=job_id)


def _open_attempt(job_id: int) -> RestartAttempt | None:
    return RestartAttempt.objects.filter(job=job_id).exclude(state__in=ENDED).first()


def _begin(going: Iterable[int], job: Job, why: Mapping[int, Reason | str], by: str, now: datetime) -> None:
    for key in going:
        Savepoint.objects.filter(pk=key, state=SavepointState.COMPLETED).update(
            state=SavepointState.DISPOSING,
            **columns("disposal_reason", why[key]),
            disposal_request="",
            disposal_tries=0,
            next_check_at=now,
            **columns("failure", ""),
        )
        audit.record(by, "savepoint.dispose", f"job {job.name}", why[key], savepoint=key)


def _completed(jobs: Iterable[int], **which: object) -> list[Savepoint]:
    rows = Savepoint.objects.filter(job__in=jobs, state=SavepointState.COMPLETED, **which).exclude(path="")
    return list(rows.select_related("job", "checkpoint"))


def _held(savepoints: Sequence[Savepoint], now: datetime, *, ended: bool = False) -> list[RetainedSavepoint]:
    """Return the savepoints with what needs them. `ended`: see `needs`."""
    needed = needs([savepoint.path for savepoint in savepoints], now, ended=ended)
    return [_as_held(each, needed.get(plain_path(each.path), ())) for each in savepoints]


def _as_held(savepoint: Savepoint, needed: Sequence[Need] = ()) -> RetainedSavepoint:
    checkpoint = savepoint.checkpoint
    return RetainedSavepoint(
        key=savepoint.pk,
        taken_at=checkpoint.triggered_at if checkpoint else savepoint.requested_at,
        origin=SavepointOrigin(savepoint.origin),
        good=not savepoint.problem and not (checkpoint and checkpoint.discarded),
        pinned=savepoint.pinned,
        needed=needed[0].why(savepoint.job_id) if needed else None,
    )
