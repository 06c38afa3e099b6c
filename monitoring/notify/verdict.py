"""Decide whether a notification is sent now, and with which others. Pure functions of facts; a verdict has a reason.

Notifications with the same cluster and the same reason that are due together become one message. If the channel's limit
allows too few messages for all groups, the gravest groups get one each. The last message is a digest of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from monitoring.models import IncidentState, MaintenanceWindow, Notification, NotificationReason, Severity
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason

LISTED = 20  # most incidents in a message; of the rest it gives the number
FOLLOW_UPS = frozenset({NotificationReason.REPEAT, NotificationReason.ESCALATION, NotificationReason.WOKEN})


@dataclass(frozen=True)
class Facts:
    """The current facts about a notification."""

    reason: NotificationReason
    state: IncidentState
    acknowledged_by: str = ""
    snoozed_until: datetime | None = None
    hidden_by: int | None = None  # the unresolved incident that hides this one
    was_notified: bool = False  # the channel was notified of this incident before
    window: MaintenanceWindow | None = None  # the maintenance window that covers the incident now
    earlier_until: datetime | None = None  # the channel's earlier message about this incident is pending
    channel_enabled: bool = True


@dataclass(frozen=True)
class Go:
    pass


@dataclass(frozen=True)
class Wait:
    """Keep the notification until `until`; None: until the hiding incident is resolved."""

    until: datetime | None
    why: Reason
    window: MaintenanceWindow | None = None


@dataclass(frozen=True)
class Drop:
    why: Reason


def judge(facts: Facts) -> Go | Wait | Drop:
    """Return whether a notification is sent, waits or is dropped.

    The end of an incident is sent unless the incident was reopened. Other events are sent while they are relevant.
    """
    if not facts.channel_enabled:
        return Drop(NotifyReason.CHANNEL_OFF())
    return _in_order(facts, _ending(facts) if facts.reason == NotificationReason.RESOLVED else _news(facts))


def _ending(facts: Facts) -> Go | Wait | Drop:
    """Decide about a resolved incident. If maintenance silenced its start, its end also waits for the window's end."""
    if facts.state != IncidentState.RESOLVED:
        return Drop(NotifyReason.REOPENED_BEFORE_TOLD())
    if facts.window is not None and not facts.was_notified:
        return Wait(facts.window.ends_at, NotifyReason.SILENCED(window=facts.window.name), facts.window)
    return Go()


def _news(facts: Facts) -> Go | Wait | Drop:
    if facts.state == IncidentState.RESOLVED:
        return Drop(NotifyReason.OVER_BEFORE_TOLD())
    # The end of a snooze is notified also if the incident is acknowledged, because a person requested it.
    is_reminder = facts.reason in FOLLOW_UPS and facts.reason != NotificationReason.WOKEN
    if is_reminder and facts.state == IncidentState.ACKNOWLEDGED:
        return Drop(NotifyReason.ACKNOWLEDGED(by=facts.acknowledged_by))
    if facts.state == IncidentState.SNOOZED and facts.snoozed_until is not None:
        if facts.reason in FOLLOW_UPS:
            return Drop(NotifyReason.SNOOZED_UNTIL(until=facts.snoozed_until))
        return Wait(facts.snoozed_until, NotifyReason.SNOOZED())
    if facts.hidden_by is not None:
        return Wait(None, NotifyReason.HIDDEN(incident=facts.hidden_by))
    if facts.window is not None:
        return Wait(facts.window.ends_at, NotifyReason.SILENCED(window=facts.window.name), facts.window)
    return Go()


def _in_order(facts: Facts, verdict: Go | Wait | Drop) -> Go | Wait | Drop:
    """Let a notification wait for the incident's earlier message, so that a channel receives them in order."""
    if isinstance(verdict, Go) and facts.earlier_until is not None:
        return Wait(facts.earlier_until, NotifyReason.AFTER_EARLIER())
    return verdict


@dataclass(frozen=True)
class Planned:
    members: tuple[Notification, ...]
    is_digest: bool = False


def plan(waiting: Sequence[Notification], slots: int) -> list[Planned]:
    """Return at most `slots` messages with all of `waiting`, or none without a slot."""
    if slots <= 0:
        return []
    groups = _by_severity(_grouped(waiting))
    if len(groups) <= slots:
        return [Planned(tuple(each)) for each in groups]
    alone, rest = groups[: slots - 1], groups[slots - 1 :]
    return [*(Planned(tuple(each)) for each in alone), Planned(tuple(each for group in rest for each in group), True)]


def group_of(each: Notification) -> tuple[object, ...]:
    """Return the key of the notification's group: its cluster and its reason."""
    return each.event.incident.cluster_id, each.reason


def _grouped(waiting: Iterable[Notification]) -> list[list[Notification]]:
    groups: dict[tuple[object, ...], list[Notification]] = {}
    for each in waiting:
        groups.setdefault(group_of(each), []).append(each)
    return list(groups.values())


def _by_severity(groups: Iterable[list[Notification]]) -> list[list[Notification]]:
    """Sort groups and their members: critical incidents first, otherwise in the given order."""
    sorted_groups = [sorted(group, key=_is_not_critical) for group in groups]
    return sorted(sorted_groups, key=lambda group: _is_not_critical(group[0]))


def _is_not_critical(each: Notification) -> bool:
    return each.event.incident.severity != Severity.CRITICAL
