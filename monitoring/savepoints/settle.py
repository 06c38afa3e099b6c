"""Apply an engine's answer to a savepoint's row. Every change is conditional: a row that has changed stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from monitoring.engine.errors import EngineError, NotFound, Refused
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress
from monitoring.models import Checkpoint, CheckpointStatus, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.claims import Outcome, update
from monitoring.savepoints.history import CLOCK_SKEW, find_by_path, find_requested
from monitoring.savepoints.schedule import try_again
from monitoring.savepoints.stops import FoundAfterStop, NotFoundAfterStop

POLL = timedelta(seconds=1)
POLL_HISTORY = timedelta(seconds=3)
RETRY = timedelta(seconds=5)
# How long to wait for the stored history after the engine has forgotten a request.
HISTORY_LAG = timedelta(seconds=30)
# Within this time, a request that the engine does not know is sent again with the same trigger ID.
SEND_AGAIN_WITHIN = timedelta(minutes=4)
LINK_WITHIN = timedelta(hours=1)


@dataclass(frozen=True)
class Accepted:
    """The engine or the operator accepted the request."""


@dataclass(frozen=True)
class ForgottenBut:
    """The engine does not know the request. `savepoints`: the trigger times of the savepoints that the engine lists.

    The engine's list is up to three seconds old and may be newer than the stored history.
    """

    savepoints: tuple[datetime, ...]


def settle(savepoint: Savepoint, answer: object, now: datetime) -> Outcome:
    """Apply the answer to the savepoint, and return the result."""
    match answer:
        case Done(location) | FoundAfterStop(location):
            return _complete(savepoint, location, now)
        case Failed(usable_location=str(location)):
            # Flink: the job failed during its stop, but after the savepoint was complete, so the savepoint is usable.
            return _complete(savepoint, location, now)
        case NotFoundAfterStop(why):
            return _fail(savepoint, why, now)
        case Failed(reason, refusal=refusal):
            return _fail(savepoint, refusal or reason, now)
        case Forgotten():
            return _find_in_history(savepoint, now)
        case ForgottenBut(savepoints):
            since = savepoint.requested_at - CLOCK_SKEW
            return _find_in_history(savepoint, now, listed=any(triggered_at >= since for triggered_at in savepoints))
        case Refused(is_request_invalid=True) | NotFound():
            return _fail(savepoint, answer.reason, now)
        case EngineError():
            return _keep(savepoint, now, RETRY, answer.reason)
        case InProgress():
            return _keep(savepoint, now, POLL, SavepointReason.STILL_UNDER_WAY(), state=SavepointState.IN_PROGRESS)
        case _:  # the engine accepted the request
            why, outcome = SavepointReason.STILL_UNDER_WAY(), WorkReason.SAVEPOINTS_SENT
            return _keep(savepoint, now, POLL, why, outcome, state=SavepointState.IN_PROGRESS)


def link_to_history(now: datetime) -> int:
    """Link completed savepoints to their polled checkpoint rows, which have the size; return how many."""
    unlinked = Savepoint.objects.filter(
        state=SavepointState.COMPLETED, checkpoint=None, completed_at__gt=now - LINK_WITHIN
    ).select_related("run")
    found = [(savepoint, row) for savepoint in unlinked if (row := find_by_path(savepoint))]
    for savepoint, row in found:
        Savepoint.objects.filter(pk=savepoint.pk).update(checkpoint=row, size=_size(row))
    return len(found)


def _find_in_history(savepoint: Savepoint, now: datetime, *, listed: bool = False) -> Outcome:
    """Look for the savepoint in the stored history.

    `listed`: the engine lists a savepoint that may be the requested one, so the request is not sent again.
    """
    found = find_requested(savepoint)
    match found.status if found else None:
        case CheckpointStatus.COMPLETED if found and found.external_path:
            return _complete(savepoint, found.external_path, now)
        case CheckpointStatus.FAILED if found:
            return _fail(savepoint, found.failure_message, now)
        case CheckpointStatus.IN_PROGRESS:
            why = SavepointReason.STILL_UNDER_WAY()
            return _keep(savepoint, now, POLL_HISTORY, why, state=SavepointState.IN_PROGRESS)
    unheard = savepoint.state == SavepointState.REQUESTED and not listed
    if unheard and now - savepoint.requested_at < SEND_AGAIN_WITHIN:
        why, outcome = SavepointReason.NEVER_ARRIVED(), WorkReason.SAVEPOINTS_TO_BE_SENT_AGAIN
        return _keep(savepoint, now, timedelta(), why, outcome, posted_at=None)
    forgotten_at = savepoint.forgotten_at or now
    if now - forgotten_at >= HISTORY_LAG:
        return _fail(savepoint, SavepointReason.LOST(), now)
    return _keep(savepoint, now, POLL_HISTORY, SavepointReason.FORGOTTEN(), forgotten_at=forgotten_at)


def _complete(savepoint: Savepoint, path: str, now: datetime) -> Outcome:
    savepoint.path = path
    row = find_by_path(savepoint)
    values: dict[str, object] = {
        "state": SavepointState.COMPLETED,
        "path": path,
        "completed_at": (row.latest_ack_at if row else None) or now,
        "checkpoint": row,
        **({"size": _size(row)} if row else {}),
        **columns("failure", ""),
    }
    try:
        with transaction.atomic():
            return update(savepoint, WorkReason.SAVEPOINTS_COMPLETED, **values)
    except IntegrityError:
        return _fail(savepoint, SavepointReason.PATH_OF_ANOTHER(path=path), now)


@transaction.atomic
def _fail(savepoint: Savepoint, reason: Reason | str, now: datetime) -> Outcome:
    if isinstance(reason, str):
        reason = reason.strip() or SavepointReason.WITHOUT_REASON()
    failed = {"state": SavepointState.FAILED, **columns("failure", reason)}
    outcome = update(savepoint, WorkReason.SAVEPOINTS_FAILED, **failed)
    if outcome is not WorkReason.OVERTAKEN and savepoint.origin == SavepointOrigin.SCHEDULED:
        try_again(savepoint.job, now)
    return outcome


def _keep(
    savepoint: Savepoint,
    now: datetime,
    wait: timedelta,
    why: Reason | str,
    outcome: Outcome = None,
    **values: object,
) -> Outcome:
    if savepoint.deadline_at and now >= savepoint.deadline_at:
        return _fail(savepoint, SavepointReason.TOO_LATE(why=why), now)
    return update(savepoint, outcome, next_check_at=now + wait, **values)


def _size(row: Checkpoint) -> int | None:
    return row.state_size if row.state_size is not None else row.checkpointed_size
