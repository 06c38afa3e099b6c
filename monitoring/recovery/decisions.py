"""Keeps what was decided of a dead job, with the facts it was decided on: a row for each restart, and of decisions to
leave it a row whenever that changed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from monitoring.models import Job, RestartDecision, Verdict
from monitoring.recovery.detection import Decision, JobFacts, Leave, NeedsPerson, OpenBreaker, Restart

_VERDICTS: dict[type[Decision], Verdict] = {
    Restart: Verdict.RESTART,
    Leave: Verdict.LEAVE,
    NeedsPerson: Verdict.PERSON,
    OpenBreaker: Verdict.BREAKER,
}


def record(job: Job, decision: Decision, facts: JobFacts, now: datetime) -> None:
    """Of two workers that leave it at once, both may leave a row: each did decide."""
    last = RestartDecision.objects.filter(job=job).first()
    verdict = _VERDICTS[type(decision)]
    said = last is not None and (last.verdict, last.reason) == (verdict, decision.reason)
    if said and not isinstance(decision, Restart):
        return
    plain = {name: _plain(value) for name, value in asdict(facts).items()}
    RestartDecision.objects.create(job=job, at=now, verdict=verdict, reason=decision.reason, facts=plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
