"""Check that the files of completed savepoints exist and are complete.

Waymark's job manager checks its own savepoints; Waymark checks those of other engines in storage, if it can reach the
storage.

Each savepoint is checked once after its completion. After that, only the newest of a job is checked again, because a
restart would use it: once a day if the engine reads every file, every ten minutes if only names and sizes are compared.
The result is stored in the savepoint's row. A savepoint with a problem does not count as good. One that is gone is not
offered, and the next newest is checked instead.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from monitoring.engine.answers import SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Refused
from monitoring.engine_calls import Call, call_all
from monitoring.models import CheckedState, Engine, Job, Savepoint, SavepointState
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.claims import Outcome, claim, update
from monitoring.savepoints.storage_threads import StorageSilent
from monitoring.savepoints.stored import validate
from monitoring.state_roots import names_a_root

BATCH = 20
LOOK_AGAIN = timedelta(days=1)
RECHECK_IN_STORAGE = timedelta(minutes=10)
RETRY = timedelta(minutes=10)
# A page waits for the answer. The storage's limit is shorter, so that the error names the storage and not the engine.
LOOK_LIMIT_S = 20.0
STORAGE_LIMIT_S = 15.0

# Messages of Flink and of Waymark's job manager for a savepoint that does not exist.
_GONE = re.compile(
    r"Cannot find checkpoint or savepoint file/directory|No such file|does not exist|FileNotFound|no _metadata",
    re.IGNORECASE,
)

Found = SavepointValidation | StorageSilent | EngineError | None


def check_completed(now: datetime) -> Counter[Outcome]:
    """Check the savepoints that are due, and count the results."""
    claimed = [each for each in _due(now) if claim(each, now)]
    answers = call_all([Call(each.job.cluster, _Act(each)) for each in claimed])
    outcome = Counter(_note(each, answer, now) for each, answer in zip(claimed, answers, strict=True))
    return Counter({what: count for what, count in outcome.items() if what})


def is_missing_error(text: str) -> bool:
    """Return whether the engine's text means that there is no savepoint at the path."""
    return _GONE.search(text) is not None


def can_be_checked(job: Job, path: str) -> bool:
    """Return whether the snapshot at `path` can be checked before a job is started from it.

    Waymark's job manager can check it, or a worker if the path is below one of WAYMARK_STATE_ROOTS.
    """
    return job.cluster.engine == Engine.SPARK or names_a_root(path)


def record_finding(job: Job, path: str, problem: Reason | str, now: datetime, *, missing: bool = False) -> None:
    """Store the result of checking the files of a job's snapshot.

    `problem` is "" if they are complete; `missing`: there are no files.
    """
    found = {"checked_at": now, **columns("problem", problem)}
    gone_at = Coalesce("gone_at", now) if missing else None
    if not Savepoint.objects.filter(job=job, path=path).update(**found, gone_at=gone_at):
        CheckedState.objects.update_or_create(job=job, path=path, defaults=found)


def look_at(job: Job, path: str, now: datetime) -> Reason | str | None:
    """Check the files of a snapshot now, and store and return the problem.

    The problem is "" if the files are complete, None if they cannot be checked.

    Raises:
        EngineError: the engine does not answer.
        StorageSilent: the storage does not answer.
    """

    async def act(client: FlinkClient) -> SavepointValidation | StorageSilent | None:
        return await validate(client, path, limit_s=STORAGE_LIMIT_S)

    (answer,) = call_all([Call(job.cluster, act)], limit_s=LOOK_LIMIT_S)
    match answer:
        case None | Refused(status=400 | 403):
            return None
        case EngineError() | StorageSilent():
            raise answer
    record_finding(job, path, answer.fault, now, missing=answer.missing)
    return answer.fault


def _due(now: datetime) -> list[Savepoint]:
    rows = Savepoint.objects.filter(state=SavepointState.COMPLETED, next_check_at__lte=now).exclude(path="")
    reachable = rows.filter(job__cluster__unreachable_since=None, job__cluster__enabled=True)
    return list(reachable.select_related("job__cluster").order_by("next_check_at", "id")[:BATCH])


class _Act:
    def __init__(self, savepoint: Savepoint) -> None:
        self._path = savepoint.path

    async def __call__(self, client: FlinkClient) -> SavepointValidation | StorageSilent | None:
        return await validate(client, self._path)


def _note(savepoint: Savepoint, answer: Found, now: datetime) -> Outcome:
    match answer:
        case None | Refused(status=400 | 403):
            # The savepoint cannot be checked, unless WAYMARK_STATE_ROOTS is extended.
            return update(savepoint, None, next_check_at=_next_look(savepoint, now, LOOK_AGAIN))
        case SavepointValidation(valid=True):
            found = {"checked_at": now, **columns("problem", ""), "gone_at": None}
            return update(savepoint, None, **found, next_check_at=_next_look(savepoint, now, _again(savepoint)))
        case SavepointValidation(missing=True, fault=fault):
            return _gone(savepoint, fault, now)
        case SavepointValidation(fault=fault):
            found = {"checked_at": now, **columns("problem", fault)}
            return update(savepoint, WorkReason.SAVEPOINTS_DAMAGED, **found, next_check_at=now + LOOK_AGAIN)
        case EngineError() | StorageSilent():
            return update(savepoint, None, next_check_at=now + RETRY)


def _gone(savepoint: Savepoint, fault: Reason | str, now: datetime) -> Outcome:
    """Mark the savepoint as gone, and check the next newest.

    The savepoint is checked again, because perhaps only its storage is unavailable.
    """
    since = savepoint.gone_at or now
    again = now + (RECHECK_IN_STORAGE if now - since < LOOK_AGAIN else LOOK_AGAIN)
    outcome = None if savepoint.gone_at else WorkReason.SAVEPOINTS_GONE
    found = {"checked_at": now, **columns("problem", fault), "gone_at": since}
    said = update(savepoint, outcome, **found, next_check_at=again)
    newest = _there(savepoint.job).first()
    if newest is not None:
        Savepoint.objects.filter(pk=newest.pk, next_check_at=None).update(next_check_at=now)
    return said


def _again(savepoint: Savepoint) -> timedelta:
    return LOOK_AGAIN if savepoint.job.cluster.engine == Engine.SPARK else RECHECK_IN_STORAGE


def _next_look(savepoint: Savepoint, now: datetime, after: timedelta) -> datetime | None:
    newest = _there(savepoint.job).first()
    return now + after if newest is None or newest.requested_at <= savepoint.requested_at else None


def _there(job: Job) -> QuerySet[Savepoint]:
    """Return the job's completed savepoints that are not marked as gone, newest first."""
    rows = Savepoint.objects.filter(job=job, state=SavepointState.COMPLETED, gone_at=None)
    return rows.order_by("-requested_at", "-id")
