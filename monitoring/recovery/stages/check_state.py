"""Chooses the snapshot to restore and verifies it, before anything is stopped or started."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext_noop as _

from checkpointing.ids import new_id
from monitoring.engine.answers import SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, NotReady, Refused, Unreachable
from monitoring.models import AttemptState, Job, RefusedStart, RestartAttempt, RestartTrigger, StepState
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason, from_json
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.candidates import State
from monitoring.recovery.launching import entry_class
from monitoring.recovery.stages.base import (
    Act,
    End,
    Next,
    Outcome,
    Wait,
    automatic,
    cluster_is_over,
    given_up,
    launch_of,
    wait_for,
    write,
)
from monitoring.recovery.states import restore_candidates
from monitoring.recovery.unseen import unseen_checkpoints
from monitoring.savepoints.checking import record_finding
from monitoring.savepoints.storage_threads import StorageSilent
from monitoring.savepoints.stored import validate

# The job may be down during the check. If storage does not answer by then, the engine checks the snapshot at the start.
STATE_READ_WITHIN_S = 15.0
# Flink's messages for a snapshot that is missing or incomplete. Flink checks it only when it starts the job.
_MISSING_STATE = re.compile(
    r"Cannot find (checkpoint|savepoint|meta ?data)|Could not load checkpoint|_metadata\b", re.IGNORECASE
)
# Messages of Flink and of Waymark's job manager for a path without a snapshot.
_NO_STATE = re.compile(r"Cannot find (checkpoint|savepoint|meta ?data)|there is no _metadata", re.IGNORECASE)


class CheckState:
    step = _("Check the state")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        if attempt.from_stop and not attempt.restore_path:
            return Next(AttemptState.STOPPING, Why.STATE_OF_THE_STOP(), StepState.SKIPPED)
        if attempt.start_empty and not automatic(attempt):
            asked = attempt.trigger == RestartTrigger.MANUAL
            text = Why.WITHOUT_STATE() if asked else Why.NO_STATE_YET()
            return Next(AttemptState.STOPPING, text, StepState.SKIPPED)
        if not attempt.restore_path and (outcome := _choose(attempt)):
            return outcome
        path, program = attempt.restore_path, entry_class(launch_of(attempt))
        # The operator starts the job even if its cluster does not answer.
        has_no_engine = cluster_is_over(attempt) or attempt.resource is not None

        async def act(client: FlinkClient) -> object:
            return await validate(None if has_no_engine else client, path, program, limit_s=STATE_READ_WITHIN_S)

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case None:
                text = Why.CANNOT_BE_CHECKED(path=attempt.restore_path)
                return Next(AttemptState.STOPPING, text, StepState.SKIPPED)
            case StorageSilent():
                return Next(AttemptState.STOPPING, Why.USED_UNCHECKED(why=answer.reason), StepState.SKIPPED)
            case SavepointValidation(valid=True):
                remember_finding(attempt, "", now)
                return Next(AttemptState.STOPPING, Why.STATE_COMPLETE(path=attempt.restore_path))
            case SavepointValidation(fault=fault, missing=missing):
                remember_finding(attempt, fault, now, missing=missing)
                return reject(attempt, fault, now)
            case Unreachable() | NotReady() | Malformed() | Refused(is_request_invalid=False):
                return wait_for(answer)  # this answer does not show whether the snapshot is usable
            case EngineError():
                return reject(attempt, answer.reason, now)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to a validation")


def reject(
    attempt: RestartAttempt,
    why: Reason | str,
    now: datetime,
    started_as: Iterable[str] = (),
    *,
    state_gone: bool = False,
) -> Outcome:
    """Reject the snapshot. An automatic restart tries the next one; a restart that a person requested fails.

    `started_as`: the engine job IDs of the refused starts. `state_gone`: the engine names the snapshot as the cause,
    so later attempts avoid it. Other problems may be temporary.
    """
    refusal = Why.STATE_REJECTED(path=attempt.restore_path, why=why)
    if not automatic(attempt):
        return End(AttemptState.FAILED, refusal, nothing_runs=True)
    path = attempt.restore_path if state_gone else ""
    RefusedStart.objects.bulk_create(
        RefusedStart(attempt=attempt, engine_job_id=each, path=path, refused_at=now) for each in started_as
    )
    write(
        attempt,
        rejected=[*attempt.rejected, _rejected(attempt.restore_path, why)],
        restore_path="",
        restore_is_savepoint=None,
        restore_state_at=None,
        savepoint_id=None,
    )
    if attempt.launches:
        # The job with that ID has ended, and an engine does not start an ID again after its job has ended.
        write(
            attempt, engine_job_id=new_id(), launch_sent_at=None, launched_at=None, launches=0, **columns("error", "")
        )
    return Next(AttemptState.VALIDATING, refusal, StepState.FAILED)


def remember_finding(attempt: RestartAttempt, problem: Reason | str, now: datetime, *, missing: bool = False) -> None:
    """Store the result of checking the snapshot's files, so that pages and other restarts can use it."""
    owner = attempt.savepoint.job if attempt.savepoint else attempt.job  # a clone starts from another job's savepoint
    record_finding(owner, attempt.restore_path, problem, now, missing=missing)


def reports_missing_state(failure: str) -> bool:
    """Return whether the engine's text says that the snapshot is missing or incomplete."""
    return _MISSING_STATE.search(failure) is not None


def reports_missing_path(failure: str) -> bool:
    """Return whether the engine's text says that there is no snapshot at the path."""
    return _NO_STATE.search(failure) is not None


def _choose(attempt: RestartAttempt) -> Next | End | None:
    """Store the next snapshot to try; return an outcome if there is none."""
    rejected = {each["path"] for each in attempt.rejected}
    left = [state for state in _candidates(attempt) if state.path not in rejected]
    state = next(iter(_refused_last(attempt.job, left)), None)
    if state is None:
        return _without_state(attempt)
    if too_old := _too_old(attempt, state):
        # The snapshot could be restored, so the job must not start without state.
        write(attempt, rejected=[*attempt.rejected, _rejected(state.path, too_old)])
        return End(AttemptState.FAILED, _nothing_left(attempt))
    write(
        attempt,
        restore_path=state.path,
        restore_is_savepoint=state.is_savepoint,
        restore_state_at=state.taken_at,
        savepoint_id=state.savepoint_row,
    )
    return None


def _refused_last(job: Job, states: Iterable[State]) -> list[State]:
    """Move snapshots that the engine refused in an earlier attempt to the end: their storage may be available again.

    A guess that the engine refused is left out.
    """
    refused = set(RefusedStart.objects.filter(attempt__job=job).values_list("path", flat=True))
    left = [state for state in states if not (state.path in refused and state.follows)]
    return sorted(left, key=lambda state: state.path in refused)


def _candidates(attempt: RestartAttempt) -> list[State]:
    """Return the snapshots to try. Store which storage did not answer, because newer snapshots may be there."""
    unseen = unseen_checkpoints(attempt.job)
    silent = [{"place": each.place, "waited_s": round(each.waited_s, 1)} for each in unseen.silent]
    if silent != attempt.silent:
        write(attempt, silent=silent)
    return restore_candidates(attempt.job, unseen.states)


def _without_state(attempt: RestartAttempt) -> Next | End:
    if not (automatic(attempt) and attempt.job.allow_empty_start):
        return End(AttemptState.FAILED, _nothing_left(attempt))
    write(attempt, start_empty=True)
    return Next(AttemptState.STOPPING, Why.STARTS_EMPTY(), StepState.SKIPPED)


def _too_old(attempt: RestartAttempt, state: State) -> Reason | None:
    """Return a reason if the snapshot is too old for automatic restarts; then all later candidates are too old, too."""
    limit, run = attempt.job.oldest_state_s, attempt.old_run
    if limit is None or not automatic(attempt):
        return None
    age = ((run.ended_at if run else None) or attempt.created_at) - state.taken_at
    allowed = timedelta(seconds=limit)
    return None if age <= allowed else Why.STATE_TOO_OLD(age=age, allowed=allowed)


def _rejected(path: str, why: Reason | str) -> dict[str, Any]:
    found = {"path": path, "why": str(why)}
    return found | {"why_value": why.as_json()} if isinstance(why, Reason) else found


def _nothing_left(attempt: RestartAttempt) -> Reason:
    if not attempt.rejected:
        return Why.NO_STATE_KNOWN()
    count, last = len(attempt.rejected), attempt.rejected[-1]
    why = from_json(last.get("why_value")) or last["why"]
    return Why.ALL_STATES_REJECTED(count=count, why=why)
