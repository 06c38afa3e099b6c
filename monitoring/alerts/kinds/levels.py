"""Kinds that look at a figure of the last completed checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts


class CheckpointFigure(Kind):
    """`column`: the figure's column of a stored checkpoint. Between two checkpoints the last one's figure stands."""

    source = Source.METRIC
    unit = Unit.MILLISECONDS
    group = _("Checkpoints")
    reach = timedelta(days=1)
    column: ClassVar[str]
    phrase: ClassVar[str]  # "Checkpoint 41 of x <phrase> 3 s"

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last = facts.last(at)
        return last.value if last else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last = facts.last(at)
        if last is None:
            return Finding(f"No checkpoint of {subject} has completed.", {"threshold": terms.threshold})
        limit = self.unit.text(terms.threshold or 0)
        return Finding(
            f"Checkpoint {last.number} of {subject} {self.phrase} {self.unit.text(last.value)} (threshold {limit}).",
            {"value": last.value, "threshold": terms.threshold, "checkpoint_id": last.number, "last_row": last.row},
        )
