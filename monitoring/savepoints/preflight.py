"""Decide whether a savepoint may be requested now. Pure function."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.models import RunState
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason


@dataclass(frozen=True)
class PreflightFacts:
    run_state: RunState | None  # None: the job never had a run
    unseen_since: datetime | None  # when the run was last seen, if that is too long ago
    cluster_reachable: bool
    savepoint_under_way: bool
    paused: Reason | None  # the reason why the job is paused
    saves_idle: bool = False  # Waymark copies files, so a savepoint needs no running job


@dataclass(frozen=True)
class Ready:
    pass


@dataclass(frozen=True)
class NotNow:
    reason: Reason


def preflight(facts: PreflightFacts) -> Ready | NotNow:
    match facts.run_state:
        case None:
            return NotNow(SavepointReason.NEVER_RAN())
        case RunState.RECONCILING if facts.saves_idle:
            pass
        case state if state is not RunState.RUNNING:
            return NotNow(SavepointReason.NOT_RUNNING(state=state.value))
    if not facts.cluster_reachable:
        return NotNow(SavepointReason.CLUSTER_SILENT())
    if facts.unseen_since is not None:
        return NotNow(SavepointReason.UNSEEN(since=facts.unseen_since))
    if facts.savepoint_under_way:
        return NotNow(SavepointReason.UNDER_WAY())
    if facts.paused:
        return NotNow(facts.paused)
    return Ready()
