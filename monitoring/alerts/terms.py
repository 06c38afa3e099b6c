"""A stored rule as the walk needs it."""

from __future__ import annotations

from datetime import timedelta

from monitoring.alerts.kinds import kind_of
from monitoring.alerts.kinds.base import Terms
from monitoring.alerts.walk import Holds, Watch
from monitoring.models import AlertRule


def terms_of(rule: AlertRule) -> Terms:
    return kind_of(rule.kind).fill(rule.threshold, rule.window_s, rule.parameters)


def watch_of(rule: AlertRule) -> Watch:
    """Raises UnknownKind."""
    holds = Holds(
        open=timedelta(seconds=rule.open_hold_s),
        close=timedelta(seconds=rule.close_hold_s),
        flap_opens=rule.flap_opens,
        flap_window=timedelta(seconds=rule.flap_window_s),
    )
    return Watch(kind_of(rule.kind), terms_of(rule), holds)
