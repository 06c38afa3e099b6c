"""Builders of the cycle reports that tests expect."""

from __future__ import annotations

from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

NOTHING = CycleReport()


def done(*reasons: object) -> CycleReport:
    return CycleReport(reasons)  # type: ignore[arg-type]


def left(*reasons: object) -> CycleReport:
    return CycleReport(left=reasons)  # type: ignore[arg-type]


def savepoints(**counts: int) -> CycleReport:
    """Return the report of savepoints with these counts, as in `savepoints(sent=1)`."""
    return done(WorkReason.SAVEPOINTS(done=_outcomes("SAVEPOINTS", counts)))


def notifications(**counts: int) -> CycleReport:
    return done(WorkReason.NOTIFICATIONS(done=_outcomes("NOTIFICATIONS", counts)))


def incidents(evaluated: int, **counts: int) -> CycleReport:
    """Return the report that so many rules were evaluated, and so many incidents opened, updated or resolved."""
    looked = WorkReason.RULES_EVALUATED(count=evaluated)
    return done(WorkReason.INCIDENTS_CHANGED(looked=looked, changes=_outcomes("INCIDENTS", counts)))


def _outcomes(of: str, counts: dict[str, int]) -> list[object]:
    return [WorkReason[f"{of}_{name.upper()}"](count=count) for name, count in counts.items()]
