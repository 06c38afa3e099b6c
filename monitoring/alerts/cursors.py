"""How far a rule has looked, per part of the fleet: a cluster that does not answer keeps its moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from monitoring.alerts.kinds.base import Kind
from monitoring.alerts.walk import LATE
from monitoring.models import AlertRule

# After a longer outage the time before it is history: shown, not told.
FARTHEST = timedelta(days=7)


def looked_until(rule: AlertRule, part: str, now: datetime) -> datetime | None:
    """From where to walk, what may have come late included; None: the rule never looked there."""
    written = rule.evaluated_until.get(part)
    return max(datetime.fromisoformat(written) - LATE, now - FARTHEST) if written else None


def gathered_since(kind: Kind, walks: Iterable[datetime | None], now: datetime) -> datetime:
    """From where facts are needed, for walks that begin there."""
    return min((now - kind.reach if since is None else since for since in walks), default=now)


def passed(rule: AlertRule, parts: Iterable[str], now: datetime) -> None:
    rule.evaluated_until = rule.evaluated_until | dict.fromkeys(parts, now.isoformat())
    rule.last_checked_at = now
