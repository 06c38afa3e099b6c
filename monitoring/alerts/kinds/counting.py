"""Kinds that count events within (at - window, at]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Kind, Number, Terms, Unit
from monitoring.alerts.rule_facts import Event, Facts

EVIDENCE_EVENTS = 20


def window(default: int) -> Number:
    return Number(_("Window"), Unit.SECONDS, default, 60, 30 * 86_400, _("How far back is counted, such as 15 min."))


class CountInWindow(Kind):
    counts = True

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        """An event is counted from its own time until it leaves the window."""
        for event in facts.within(since - terms.window, until):
            yield event.at
            yield event.at + terms.window

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(self.counted(facts, terms, at))

    def counted(self, facts: Facts, terms: Terms, at: datetime) -> Sequence[Event]:
        return facts.within(at - terms.window, at)


def evidence(counted: Sequence[Event], terms: Terms) -> dict[str, Any]:
    """The newest ids first."""
    return {
        "count": len(counted),
        "threshold": terms.threshold,
        "window_s": terms.window_s,
        "checkpoint_ids": [event.number for event in reversed(counted[-EVIDENCE_EVENTS:])],
        "last_row": counted[-1].row if counted else None,
    }
