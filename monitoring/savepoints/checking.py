"""Are the files of completed savepoints still there and complete? Asked of engines that can tell (our job manager);
what others took is looked at where it lies, when that can be reached.

Each is looked at once when it is complete, and the newest of a job once a day after that: it is what a restart would
take. What is found stands on the savepoint's row; one with a problem does not count as good any more.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef

from monitoring.engine.answers import SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Refused
from monitoring.engine_calls import Call, call_all
from monitoring.models import CheckedState, Job, Savepoint, SavepointState
from monitoring.savepoints.claims import claim, update
from monitoring.savepoints.looking import StorageSilent
from monitoring.savepoints.stored import validate

BATCH = 20
LOOK_AGAIN = timedelta(days=1)
RETRY = timedelta(minutes=10)
# Somebody waits for it in front of a page; the storage's part ends first, so that it is named and not the engine.
LOOK_LIMIT_S = 20.0
STORAGE_LIMIT_S = 15.0

Found = SavepointValidation | StorageSilent | EngineError | None


def check_completed(now: datetime) -> Counter[str]:
    """Look at those that are due; counts what was found in words."""
    claimed = [each for each in _due(now) if claim(each, now)]
    answers = call_all([Call(each.job.cluster, _Act(each)) for each in claimed])
    outcome = Counter(_note(each, answer, now) for each, answer in zip(claimed, answers, strict=True))
    return Counter({what: count for what, count in outcome.items() if what})


def record_finding(job: Job, path: str, problem: str, now: datetime) -> None:
    """What a look at the files of a state of `job` found; "" when they are there and complete."""
    if not Savepoint.objects.filter(job=job, path=path).update(checked_at=now, problem=problem):
        CheckedState.objects.update_or_create(job=job, path=path, defaults={"checked_at": now, "problem": problem})


def look_at(job: Job, path: str, now: datetime) -> str | None:
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
    record_finding(job, path, answer.problem, now)
    return answer.problem


def _due(now: datetime) -> list[Savepoint]:
    rows = Savepoint.objects.filter(state=SavepointState.COMPLETED, next_check_at__lte=now).exclude(path="")
    reachable = rows.filter(job__cluster__unreachable_since=None, job__cluster__enabled=True)
    return list(reachable.select_related("job__cluster").order_by("next_check_at", "id")[:BATCH])


class _Act:
    def __init__(self, savepoint: Savepoint) -> None:
        self._path = savepoint.path

    async def __call__(self, client: FlinkClient) -> SavepointValidation | StorageSilent | None:
        return await validate(client, self._path)


def _note(savepoint: Savepoint, answer: Found, now: datetime) -> str:
    match answer:
        case None | Refused(status=400 | 403):
            return update(savepoint, "", next_check_at=None)  # it cannot tell: it is not asked again
        case SavepointValidation(valid=True):
            return update(savepoint, "", checked_at=now, problem="", next_check_at=_next_look(savepoint, now))
        case SavepointValidation(problem=problem):
            return update(savepoint, "found damaged", checked_at=now, problem=problem, next_check_at=now + LOOK_AGAIN)
        case EngineError() | StorageSilent():
            return update(savepoint, "", next_check_at=now + RETRY)


def _next_look(savepoint: Savepoint, now: datetime) -> datetime | None:
    newer = Savepoint.objects.filter(
        job=OuterRef("job"), state=SavepointState.COMPLETED, requested_at__gt=OuterRef("requested_at")
    )
    newest = Savepoint.objects.filter(~Exists(newer), pk=savepoint.pk).exists()
    return now + LOOK_AGAIN if newest else None
