"""Kinds that compare a figure of the last completed checkpoint with what is usual for the job: with its own p95.

The p95 is that of the N whole UTC days before the day in question, so that it is one number for a day, whoever asks and
whenever: live evaluation and backtest agree on it, and a figure that grows does not hide itself by lifting its measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.facts import Facts
from monitoring.alerts.kinds.base import Day, Finding, Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure

_DAYS = Number(_("Days"), Unit.COUNT, 7, 1, 90, _("Whole days, UTC, before today, that the p95 is of."))
_THRESHOLD = Number(_("Threshold"), Unit.PERCENT, 200, 101, 100_000, _("Percent of the p95: 200 is twice as much."))


class RelativeFigure(CheckpointFigure):
    """Value: percent of the p95. `measured_in`: the figure's own unit; `figure`: what a sentence calls it."""

    unit = Unit.PERCENT
    measured_in: ClassVar[Unit] = Unit.MILLISECONDS
    figure: ClassVar[str]
    threshold = _THRESHOLD
    parameters: ClassVar[Mapping[str, Number | Day]] = {"days": _DAYS}
    check_every_s = 300

    def explain(self, terms: Terms) -> str:
        limit, days = self.unit.text(terms.threshold or 0), terms.parameters["days"]
        return (
            f"Opens when the {self.figure} of the last completed checkpoint is {limit} or more of the job's own p95 "
            f"over the {days} days before{self._floor_text(terms)}."
        )

    def gathered_by(self, terms: Terms) -> object:
        return terms.parameters["days"]

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        yield from super().moments(facts, terms, since, until)
        midnight = datetime.combine(since.astimezone(UTC).date(), time(), UTC)
        while (midnight := midnight + timedelta(days=1)) <= until:
            yield midnight

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last, usual = facts.last(at), self._usual(facts, terms, at)
        return 100 * last.value / usual if last and usual else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, usual = facts.last(at), facts.baseline.get(at.astimezone(UTC).date())
        value = self.value(facts, terms, at)
        if last is None or usual is None or value is None:
            return Finding(f"{subject} has no p95 of its {self.figure} yet.", {"threshold_percent": terms.threshold})
        text, days = self.measured_in.text, terms.parameters["days"]
        least = {"least_ms": terms.parameters["least_ms"]} if "least_ms" in self.parameters else {}
        return Finding(
            f"Checkpoint {last.number} of {subject} {self.phrase} {text(last.value)}, {value:.0f} % of its p95 over "
            f"{days} days, {text(usual)}{self._floor_text(terms)} (threshold {terms.threshold} %).",
            {
                "value_percent": round(value, 1),
                "threshold_percent": terms.threshold,
                self.column: last.value,
                "p95": usual,
                "days": days,
                **least,
                "checkpoint_id": last.number,
                "last_row": last.row,
            },
        )

    def _usual(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        """None, too, where nothing can be divided by it."""
        p95 = facts.baseline.get(at.astimezone(UTC).date())
        return None if p95 is None else max(p95, terms.parameters.get("least_ms") or 0) or None

    def _floor_text(self, terms: Terms) -> str:
        least = terms.parameters.get("least_ms")
        return f", which counts as {self.measured_in.text(least)} at least" if least else ""


class RelativeDuration(RelativeFigure):
    """A p95 of a few milliseconds doubles by chance: below `least_ms` it counts as that."""

    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "days": _DAYS,
        "least_ms": Number(
            _("At least"), Unit.MILLISECONDS, 1000, 0, 86_400_000, _("A shorter p95 counts as this much: such as 1 s.")
        ),
    }
