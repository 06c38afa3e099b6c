"""Kinds that look at a figure of the last completed checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class NoCheckpoint(ReasonCode):
    NONE_COMPLETED = "alerts.no-checkpoint-yet", _("No checkpoint of {subject} has completed.")


class CheckpointFigure(Kind):
    """`column`: the figure's column of a stored checkpoint. Between two checkpoints the last one's figure stands.

    `rule` and `found`: what the kind says, with the threshold, and with checkpoint, subject and value.
    """

    source = Source.METRIC
    unit = Unit.MILLISECONDS
    group = _("Checkpoints")
    reach = timedelta(days=1)
    column: ClassVar[str]
    rule: ClassVar[ReasonCode]
    found: ClassVar[ReasonCode]

    def explain(self, terms: Terms) -> Reason:
        return self.rule(threshold=terms.threshold or 0)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last = facts.last(at)
        return last.value if last else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last = facts.last(at)
        if last is None:
            return Finding(NoCheckpoint.NONE_COMPLETED(subject=subject), {"threshold": terms.threshold})
        return Finding(
            self.found(checkpoint=last.number, subject=subject, value=last.value, threshold=terms.threshold or 0),
            {"value": last.value, "threshold": terms.threshold, "checkpoint_id": last.number, "last_row": last.row},
        )
