"""The state is much larger than this job's usually is: compared with its own p95.

The p95 is that of the N whole UTC days before the day in question, so that it is one number for a day, whoever asks and
whenever: live evaluation and backtest agree on it, and a growing state does not hide itself by lifting its own measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.facts import Facts
from monitoring.alerts.kinds.base import Day, Finding, Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure


class StateSizeRelative(CheckpointFigure):
    name = "state_size_relative"
    title = _("State size against the job's own p95")
    group = _("State")
    unit = Unit.PERCENT
    column = "state_size"
    phrase = "holds a state of"
    threshold = Number(_("Threshold"), Unit.PERCENT, 200, 101, 100_000, _("Percent of the p95: 200 is twice as large."))
    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "days": Number(_("Days"), Unit.COUNT, 7, 1, 90, _("Whole days, UTC, before today, that the p95 is of."))
    }
    check_every_s = 300

    def explain(self, terms: Terms) -> str:
        limit = self.unit.text(terms.threshold or 0)
        return (
            f"Opens when the state of the last completed checkpoint is {limit} or more of the job's own p95 "
            f"over the {terms.parameters['days']} days before."
        )

    def gathered_by(self, terms: Terms) -> object:
        return terms.parameters["days"]

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        yield from super().moments(facts, terms, since, until)
        midnight = datetime.combine(since.astimezone(UTC).date(), time(), UTC)
        while (midnight := midnight + timedelta(days=1)) <= until:
            yield midnight

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last, usual = facts.last(at), facts.baseline.get(at.astimezone(UTC).date())
        return 100 * last.value / usual if last and usual else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, usual = facts.last(at), facts.baseline.get(at.astimezone(UTC).date())
        value = self.value(facts, terms, at)
        if last is None or usual is None or value is None:
            return Finding(f"{subject} has no p95 of its state yet.", {"threshold_percent": terms.threshold})
        return Finding(
            f"Checkpoint {last.number} of {subject} holds {Unit.BYTES.text(last.value)} of state, {value:.0f} % of its "
            f"p95 over {terms.parameters['days']} days, {Unit.BYTES.text(usual)} (threshold {terms.threshold} %).",
            {
                "value_percent": round(value, 1),
                "threshold_percent": terms.threshold,
                "state_size": last.value,
                "p95": usual,
                "days": terms.parameters["days"],
                "checkpoint_id": last.number,
                "last_row": last.row,
            },
        )


KIND = StateSizeRelative()
