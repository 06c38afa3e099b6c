"""May a notification go out now, and with which others? Pure: facts and the moment in, a verdict with its reason out.

What is about one cluster, of one kind of news, and due together is one message. When a channel's limit leaves too few
messages for all groups, the gravest get one each and the last message is a digest of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from monitoring.models import IncidentState, MaintenanceWindow, Notification, NotificationReason, Severity
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason

LISTED = 20  # incidents that a message names; of more it says how many
FOLLOW_UPS = frozenset({NotificationReason.REPEAT, NotificationReason.ESCALATION, NotificationReason.WOKEN})


@dataclass(frozen=True)
class Facts:
    """What a verdict rests on, as it is right now."""

    reason: NotificationReason
    state: IncidentState
    acknowledged_by: str = ""
    snoozed_until: datetime | None = None
    resolved_at: datetime | None = None
    hidden_by: int | None = None  # an unresolved incident that speaks for this one
    was_told: bool = False  # the channel heard of this incident before
    window: MaintenanceWindow | None = None  # one that covers the incident now
    earlier_until: datetime | None = None  # an earlier message about this incident is still on its way to the channel
    channel_enabled: bool = True


@dataclass(frozen=True)
class Go:
    pass


@dataclass(frozen=True)
class Wait:
    """`until` None: until what hides the incident is resolved."""

    until: datetime | None
    why: Reason
    window: MaintenanceWindow | None = None


@dataclass(frozen=True)
class Drop:
    why: Reason


def judge(facts: Facts) -> Go | Wait | Drop:
    """The end of an incident is told whatever silenced its beginning; all else only while somebody needs to hear it."""
    if not facts.channel_enabled:
        return Drop(NotifyReason.CHANNEL_OFF())
    return _in_order(facts, _ending(facts) if facts.reason == NotificationReason.RESOLVED else _news(facts))


def _ending(facts: Facts) -> Go | Wait | Drop:
    """Who heard of the beginning hears of the end at once; who did not, because of maintenance, when that is over."""
    if facts.window is not None and not facts.was_told:
        return Wait(facts.window.ends_at, NotifyReason.SILENCED(window=facts.window.name), facts.window)
    return Go()


def _news(facts: Facts) -> Go | Wait | Drop:
    if facts.state == IncidentState.RESOLVED:
        return Drop(NotifyReason.OVER_BEFORE_TOLD())
    # The end of a snooze is told also of what was acknowledged: its author asked to be reminded.
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
    """A channel hears of an incident in the order in which it happened."""
    if isinstance(verdict, Go) and facts.earlier_until is not None:
        return Wait(facts.earlier_until, NotifyReason.AFTER_EARLIER())
    return verdict


@dataclass(frozen=True)
class Planned:
    members: tuple[Notification, ...]
    is_digest: bool = False


def plan(waiting: Sequence[Notification], slots: int) -> list[Planned]:
    """At most `slots` messages that together hold all of `waiting`; with no slot none, and all go on waiting."""
    if slots <= 0:
        return []
    groups = _gravest_first(_grouped(waiting))
    if len(groups) <= slots:
        return [Planned(tuple(each)) for each in groups]
    alone, rest = groups[: slots - 1], groups[slots - 1 :]
    return [*(Planned(tuple(each)) for each in alone), Planned(tuple(each for group in rest for each in group), True)]


def group_of(each: Notification) -> tuple[object, ...]:
    """Return what the notifications of one message have in common."""
    return each.event.incident.cluster_id, each.reason


def _grouped(waiting: Iterable[Notification]) -> list[list[Notification]]:
    groups: dict[tuple[object, ...], list[Notification]] = {}
    for each in waiting:
        groups.setdefault(group_of(each), []).append(each)
    return list(groups.values())


def _gravest_first(groups: Iterable[list[Notification]]) -> list[list[Notification]]:
    """Critical ones first, each group beginning with its gravest; else in the order in which they came."""
    sorted_groups = [sorted(group, key=_is_not_critical) for group in groups]
    return sorted(sorted_groups, key=lambda group: _is_not_critical(group[0]))


def _is_not_critical(each: Notification) -> bool:
    return each.event.incident.severity != Severity.CRITICAL
