"""Are the files of completed savepoints still there and complete? Asked of engines that can tell (our job manager);
what others took is looked at where it lies, when that can be reached.

Each is looked at once when it is complete. After that the newest of a job is looked at again, for it is what a restart
would take: once a day where the engine reads every file, every ten minutes where only names and sizes are compared.
What is found stands on the savepoint's row. One with a problem does not count as good; one that is gone is not offered,
and the next newest is looked at in its place.
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
from monitoring.savepoints.looking import StorageSilent
from monitoring.savepoints.stored import validate
from monitoring.state_roots import names_a_root

BATCH = 20
LOOK_AGAIN = timedelta(days=1)
LOOK_AGAIN_WHERE_IT_LIES = timedelta(minutes=10)
RETRY = timedelta(minutes=10)
# Somebody waits for it in front of a page; the storage's part ends first, so that it is named and not the engine.
LOOK_LIMIT_S = 20.0
STORAGE_LIMIT_S = 15.0

# What an engine says of a savepoint that is not there: Flink's and ours.
_GONE = re.compile(
    r"Cannot find checkpoint or savepoint file/directory|No such file|does not exist|FileNotFound|no _metadata",
    re.IGNORECASE,
)

Found = SavepointValidation | StorageSilent | EngineError | None


def check_completed(now: datetime) -> Counter[Outcome]:
    """Look at those that are due; counts what was found."""
    claimed = [each for each in _due(now) if claim(each, now)]
    answers = call_all([Call(each.job.cluster, _Act(each)) for each in claimed])
    outcome = Counter(_note(each, answer, now) for each, answer in zip(claimed, answers, strict=True))
    return Counter({what: count for what, count in outcome.items() if what})


def says_gone(text: str) -> bool:
    """Whether an engine's words mean that there is no savepoint at the path that it was given."""
    return _GONE.search(text) is not None


def can_be_checked(job: Job, path: str) -> bool:
    """Whether anybody can tell if the state of `job` at `path` is there and complete, before a job is started from it:
    our job manager, or a worker where WAYMARK_STATE_ROOTS names the place."""
    return job.cluster.engine == Engine.SPARK or names_a_root(path)


def record_finding(job: Job, path: str, problem: Reason | str, now: datetime, *, missing: bool = False) -> None:
    """What a look at the files of a state of `job` found; "" when they are there and complete. `missing`: nothing is
    there."""
    found = {"checked_at": now, **columns("problem", problem)}
    gone_at = Coalesce("gone_at", now) if missing else None
    if not Savepoint.objects.filter(job=job, path=path).update(**found, gone_at=gone_at):
        CheckedState.objects.update_or_create(job=job, path=path, defaults=found)


def look_at(job: Job, path: str, now: datetime) -> Reason | str | None:
    """Look at the files of a state now, and remember what was found: "" when they are there and complete, None when
    nobody can tell. Raises EngineError when the engine does not answer, StorageSilent when the storage does not."""

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
            # Nobody can tell, until WAYMARK_STATE_ROOTS names the place.
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
    """It is looked at again: perhaps only its storage is away. The next newest takes its place meanwhile."""
    since = savepoint.gone_at or now
    again = now + (LOOK_AGAIN_WHERE_IT_LIES if now - since < LOOK_AGAIN else LOOK_AGAIN)
    outcome = None if savepoint.gone_at else WorkReason.SAVEPOINTS_GONE
    found = {"checked_at": now, **columns("problem", fault), "gone_at": since}
    said = update(savepoint, outcome, **found, next_check_at=again)
    newest = _there(savepoint.job).first()
    if newest is not None:
        Savepoint.objects.filter(pk=newest.pk, next_check_at=None).update(next_check_at=now)
    return said


def _again(savepoint: Savepoint) -> timedelta:
    return LOOK_AGAIN if savepoint.job.cluster.engine == Engine.SPARK else LOOK_AGAIN_WHERE_IT_LIES


def _next_look(savepoint: Savepoint, now: datetime, after: timedelta) -> datetime | None:
    newest = _there(savepoint.job).first()
    return now + after if newest is None or newest.requested_at <= savepoint.requested_at else None


def _there(job: Job) -> QuerySet[Savepoint]:
    """The completed savepoints of which nobody found that they are gone, the newest first."""
    rows = Savepoint.objects.filter(job=job, state=SavepointState.COMPLETED, gone_at=None)
    return rows.order_by("-requested_at", "-id")
