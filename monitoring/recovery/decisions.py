"""Stores decisions about dead jobs with their facts: one row per restart, and one row per change of other decisions."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from monitoring.models import Job, RestartDecision, Verdict
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.recovery.detection import Decision, JobFacts, Leave, NeedsPerson, OpenBreaker, Restart

_VERDICTS: dict[type[Decision], Verdict] = {
    Restart: Verdict.RESTART,
    Leave: Verdict.LEAVE,
    NeedsPerson: Verdict.PERSON,
    OpenBreaker: Verdict.BREAKER,
}


def record(job: Job, decision: Decision, facts: JobFacts, now: datetime) -> None:
    """Store the decision. If two workers decide at the same time, both may store a row."""
    last = RestartDecision.objects.filter(job=job).first()
    verdict = _VERDICTS[type(decision)]
    is_known = last is not None and (last.verdict, last.reason_value) == (verdict, decision.reason)
    if is_known and not isinstance(decision, Restart):
        return
    plain = {each.name: _plain(getattr(facts, each.name)) for each in fields(facts)} | {
        "paused": str(facts.paused or "")
    }
    RestartDecision.objects.create(job=job, at=now, verdict=verdict, facts=plain, **columns("reason", decision.reason))


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case tuple():
            return [_plain(each) for each in value]
        case Reason():
            return str(value)
    return value
