"""Removes the files of savepoints in state DISPOSING, one step at a time.

Without a request, the worker sends one to the engine. With a request, the worker polls its result. A failure, a lost
answer or a forgotten request clears the request, and the worker sends it again after longer and longer waits. If the
files are already gone, the removal is done. The engine needs no live job for it. If the cluster is gone or only
watched, the worker removes the files itself, if it can reach the storage. A savepoint in state DISPOSING is never
restored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Refused
from monitoring.engine.operations import Done, Failed, Forgotten, Operation
from monitoring.engine_calls import Call, call_all
from monitoring.models import Cluster, Savepoint, SavepointState
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.checking import is_missing_error
from monitoring.savepoints.claims import Outcome, claim, update
from monitoring.savepoints.flink_metadata import NotFlinkMetadata
from monitoring.savepoints.history import plain_path
from monitoring.savepoints.needed import Need, needs
from monitoring.savepoints.storage_threads import StorageSilent, TimeLimit
from monitoring.savepoints.stored import READ_WITHIN_S, is_reachable, remove
from monitoring.savepoints.through_operator import SnapshotResource

BATCH = 50
# A cluster that is silent for this long counts as gone, so that Waymark removes the files itself.
GONE_AFTER = timedelta(minutes=10)
POLL = timedelta(seconds=1)
FIRST_RETRY_S = 10
LONGEST_RETRY = timedelta(hours=6)


@dataclass(frozen=True)
class DisposalAccepted:
    request_id: str


def advance_disposals(now: datetime) -> Counter[Outcome]:
    """Move every due disposal by one step, and count the results."""
    claimed = [each for each in _due(now) if claim(each, now)]
    needed = needs([each.path for each in claimed if not each.disposal_request], now)
    spared = [each for each in claimed if plain_path(each.path) in needed]
    ours = [each for each in claimed if each not in spared and _is_ours(each, now)]
    requested = [each for each in claimed if each not in spared and each not in ours]
    answers = call_all([Call(each.job.cluster, _Act(each)) for each in requested])
    outcome = Counter(_settle(each, answer, now) for each, answer in zip(requested, answers, strict=True))
    outcome += Counter(_spare(each, needed[plain_path(each.path)][0], now) for each in spared)
    time_limit = TimeLimit(READ_WITHIN_S)
    outcome += Counter(_settle(each, _remove(each, time_limit), now) for each in ours)
    return Counter({what: count for what, count in outcome.items() if what})


def _spare(savepoint: Savepoint, need: Need, now: datetime) -> Outcome:
    """Delay the removal: a job was started from the savepoint outside Waymark after the removal was decided."""
    return _later(savepoint, SavepointReason.NOT_REMOVED_NOW(why=need.why(savepoint.job_id)), now)


def _is_ours(savepoint: Savepoint, now: datetime) -> bool:
    """Return whether Waymark removes the files itself. It has copied those of a watched query itself, too."""
    cluster = savepoint.job.cluster
    return cluster.only_watched or (_gone(cluster, now) and is_reachable(savepoint.path))


def _gone(cluster: Cluster, now: datetime) -> bool:
    silent = cluster.unreachable_since
    return not cluster.enabled or (silent is not None and silent <= now - GONE_AFTER)


def _remove(savepoint: Savepoint, time_limit: TimeLimit) -> Done[None] | OSError | NotFlinkMetadata:
    try:
        remove(savepoint.path, time_limit)
    except (OSError, NotFlinkMetadata) as error:
        return error
    return Done(None)


def _due(now: datetime) -> list[Savepoint]:
    rows = Savepoint.objects.filter(state=SavepointState.DISPOSING, next_check_at__lte=now)
    return list(rows.select_related("job__cluster", "job__current_run").order_by("next_check_at", "id")[:BATCH])


class _Act:
    def __init__(self, savepoint: Savepoint) -> None:
        self._path, self._request_id = savepoint.path, savepoint.disposal_request
        self._resource = SnapshotResource(savepoint)

    async def __call__(self, client: FlinkClient) -> DisposalAccepted | Operation[None]:
        if self._request_id:
            status = await client.disposal_status(self._request_id)
            if isinstance(status, Done):
                await self._resource.forget()
            return status
        return DisposalAccepted(await client.dispose_savepoint(self._path))


def _settle(savepoint: Savepoint, answer: object, now: datetime) -> Outcome:
    match answer:
        case DisposalAccepted(request_id):
            tries = savepoint.disposal_tries + 1
            return update(savepoint, None, disposal_request=request_id, disposal_tries=tries, next_check_at=now + POLL)
        case Done():
            return _disposed(savepoint, now)
        case Failed(reason, trace=trace):
            gone = is_missing_error(reason) or is_missing_error(trace)
            return _disposed(savepoint, now, reason) if gone else _later(savepoint, reason, now)
        case OSError() | NotFlinkMetadata():
            why = answer.reason if isinstance(answer, StorageSilent) else str(answer)
            failure = SavepointReason.NOT_REMOVED_FROM_STORAGE(error=why)
            gone = isinstance(answer, FileNotFoundError)
            return _disposed(savepoint, now, failure) if gone else _later(savepoint, failure, now)
        case Forgotten():
            return _later(savepoint, SavepointReason.REMOVAL_FORGOTTEN(), now)
        case Refused(engine_text=text) if is_missing_error(text):
            return _disposed(savepoint, now, text)
        case EngineError() as error if savepoint.disposal_request:
            return update(savepoint, None, **columns("failure", error.reason), next_check_at=now + _wait(savepoint))
        case EngineError() as error:
            return _later(savepoint, error.reason, now)
        case _:
            return update(savepoint, None, next_check_at=now + POLL)


def _disposed(savepoint: Savepoint, now: datetime, not_there: Reason | str = "") -> Outcome:
    """Store that the savepoint is removed. `not_there`: the message if there was nothing to remove."""
    said = update(
        savepoint,
        WorkReason.SAVEPOINTS_DISPOSED,
        state=SavepointState.DISPOSED,
        disposed_at=now,
        **columns("failure", SavepointReason.NOTHING_TO_REMOVE(why=not_there) if not_there else ""),
        next_check_at=None,
    )
    if said is not WorkReason.OVERTAKEN:
        details = {"savepoint": savepoint.pk, "path": savepoint.path, "not_there": str(not_there)}
        target = f"job {savepoint.job.name}"
        audit.record(audit.AUTOMATION, "savepoint.disposed", target, stored(savepoint, "disposal_reason"), **details)
    return said


def _later(savepoint: Savepoint, why: Reason | str, now: datetime) -> Outcome:
    return update(
        savepoint,
        WorkReason.SAVEPOINTS_NOT_DISPOSED,
        **columns("failure", why),
        disposal_request="",
        disposal_tries=savepoint.disposal_tries + (not savepoint.disposal_request),
        next_check_at=now + _wait(savepoint),
    )


def _wait(savepoint: Savepoint) -> timedelta:
    return min(LONGEST_RETRY, timedelta(seconds=FIRST_RETRY_S * 2 ** min(savepoint.disposal_tries, 12)))
