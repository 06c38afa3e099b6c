"""Whether a savepoint may be asked for now. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.models import RunState


@dataclass(frozen=True)
class PreflightFacts:
    run_state: RunState | None  # None: no run was ever seen
    unseen_since: datetime | None  # when that was, where it is too long ago to be relied on
    cluster_reachable: bool
    savepoint_under_way: bool
    paused: str  # why; "" when it is not


@dataclass(frozen=True)
class Ready:
    pass


@dataclass(frozen=True)
class NotNow:
    reason: str


def preflight(facts: PreflightFacts) -> Ready | NotNow:
    match facts.run_state:
        case None:
            return NotNow("the job has never run")
        case state if state is not RunState.RUNNING:
            return NotNow(f"the job is {state.value}, not RUNNING")
    if not facts.cluster_reachable:
        return NotNow("the cluster does not answer")
    if facts.unseen_since is not None:
        return NotNow(f"the job has not been seen since {facts.unseen_since:%Y-%m-%d %H:%M:%S} UTC")
    if facts.savepoint_under_way:
        return NotNow("a savepoint is already under way")
    if facts.paused:
        return NotNow(facts.paused)
    return Ready()
