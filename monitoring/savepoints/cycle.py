"""Moves every open savepoint by one step.

1. Create the requests that are due by schedule.
2. Claim due rows (claims.py); `posted_at` is stored before the first request is sent.
3. Call the engines, all at once, outside transactions.
4. Begin the copies that the transports of watched directories have stored (copies.py).
5. Store the result of each answer. If a worker dies in between, the row is due again when its claim expires. Then the
   next worker looks up the trigger ID at the engine before it sends the request again.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from django.db.models import Q

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound, NotReady, Unreachable
from monitoring.engine.operations import Forgotten, Operation
from monitoring.engine_calls import Call, call_all
from monitoring.models import Savepoint
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.checking import check_completed
from monitoring.savepoints.claims import CLAIM, claim
from monitoring.savepoints.copies import take_up
from monitoring.savepoints.disposal import advance_disposals
from monitoring.savepoints.request import IN_FLIGHT
from monitoring.savepoints.savers import Saver, saver_of
from monitoring.savepoints.schedule import request_due
from monitoring.savepoints.settle import Accepted, ForgottenBut, link_to_history, settle
from monitoring.savepoints.stops import FoundAfterStop, NotFoundAfterStop, StopSearch, search_for
from monitoring.savepoints.storage_threads import StorageSilent
from monitoring.savepoints.through_operator import OperatorAct, operator_resource

BATCH = 100


Answer = Accepted | ForgottenBut | FoundAfterStop | NotFoundAfterStop | Operation[str]


def advance(now: datetime) -> CycleReport:
    """Run one cycle, and return what was done."""
    outcome = request_due(now)
    # In memory `posted_at` stays what it was: None means that this worker sends the first request.
    claimed = [each for each in _due(now) if claim(each, now, posted_at=each.posted_at or now)]
    answers = call_all([_call(each, now) for each in claimed])
    take_up(now)
    for savepoint, answer in zip(claimed, answers, strict=True):
        outcome[settle(savepoint, answer, now)] += 1
    outcome[WorkReason.SAVEPOINTS_LINKED] += link_to_history(now)
    outcome += check_completed(now)
    outcome += advance_disposals(now)
    done = [what(count=count) for what, count in outcome.items() if what and count]
    return CycleReport((WorkReason.SAVEPOINTS(done=done),) if done else ())


def _due(now: datetime) -> list[Savepoint]:
    # No open savepoint waits longer than a claim: a later time was written before the clock was set back.
    due = Q(next_check_at__lte=now) | Q(next_check_at__gt=now + 2 * CLAIM)
    return list(
        Savepoint.objects.filter(due, state__in=IN_FLIGHT)
        .select_related("job__cluster", "run")
        .order_by("next_check_at", "id")[:BATCH]
    )


def _call(savepoint: Savepoint, now: datetime) -> Call[Answer]:
    job_id = savepoint.run.engine_job_id
    if (resource := operator_resource(savepoint)) is not None:
        return Call(savepoint.job.cluster, OperatorAct(savepoint, resource))
    saver = saver_of(savepoint.job, job_id) or Saver(savepoint.job.cluster, job_id)
    return Call(saver.cluster, _Act(savepoint, saver.engine_job_id, search_for(savepoint, now)))


class _Act:
    """The engine calls for one savepoint, according to its row when it was claimed. `search`: if there is no answer."""

    def __init__(self, savepoint: Savepoint, job_id: str, search: StopSearch | None) -> None:
        self._search = search
        self._job_id = job_id
        self._trigger_id = savepoint.trigger_id
        self._stops_job = savepoint.stops_job
        self._never_sent = savepoint.posted_at is None

    async def __call__(self, client: FlinkClient) -> Answer:
        if not self._never_sent:
            return await self._status_or_search(client)
        if self._stops_job:
            await client.stop_with_savepoint(self._job_id, self._trigger_id)
        else:
            await client.trigger_savepoint(self._job_id, self._trigger_id)
        return Accepted()

    async def _status_or_search(self, client: FlinkClient) -> Answer:
        try:
            return await self._status(client)
        except EngineError as error:
            if self._search is None or isinstance(error, NotReady):
                raise
            try:
                return await asyncio.to_thread(self._search.run)
            except StorageSilent as silent:
                raise Unreachable(silent.reason) from silent

    async def _status(self, client: FlinkClient) -> Answer:
        status = await client.savepoint_status(self._job_id, self._trigger_id)
        if not isinstance(status, Forgotten):
            return status
        try:
            history = (await client.checkpoints(self._job_id)).history
        except NotFound:
            return status
        return ForgottenBut(tuple(entry.triggered_at for entry in history if entry.is_savepoint))
