"""The transactional outbox: a notification exists if, and only if, its incident step was committed.

A row says only which channel to notify, and when at the earliest. When that time has come,
`notify/due_notifications.py` decides whether to send it, and in which message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import prefetch_related_objects

from monitoring import bulk
from monitoring.models import (
    Channel,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    Notification,
    NotificationReason,
    NotificationState,
)
from monitoring.reasons.columns import columns
from monitoring.reasons.notify import NotifyReason

# When a cluster answers again, the rules of its jobs have this time to evaluate before people are notified.
SETTLING = timedelta(minutes=6)
REASONS = {
    IncidentEventKind.OPENED: NotificationReason.OPENED,
    IncidentEventKind.REOPENED: NotificationReason.OPENED,
    IncidentEventKind.WOKEN: NotificationReason.WOKEN,
    IncidentEventKind.RESOLVED: NotificationReason.RESOLVED,
}


def write(events: Sequence[IncidentEvent], now: datetime) -> int:
    """Store one notification per step and enabled channel of its rule, in the caller's transaction; return how many.

    If the rule names no channel, or the incident has no rule, every enabled channel gets a notification. The opening of
    a hidden incident is held. The end of an incident also goes to the channels that were notified of it; the end of a
    hidden incident goes only to those.
    """
    prefetch_related_objects([event.incident for event in events], "rule__channels")
    channels = _Channels()
    ended = [event for event in events if event.kind == IncidentEventKind.RESOLVED]
    notified = _notified_channels(ended)
    _drop_held(ended)
    rows = [
        _notification(event, channel, now)
        for event in events
        for channel in channels.of(event, notified.get(event.incident_id, set()))
    ]
    bulk.insert(rows)
    return len(rows)


def release(incidents: Collection[Incident], now: datetime) -> int:
    """Make the held notifications of these incidents due after SETTLING; return how many these are."""
    held = Notification.objects.filter(
        event__incident__in=[each.pk for each in incidents], state=NotificationState.HELD
    )
    return held.update(state=NotificationState.WAITING, due_at=now + SETTLING, **columns("why", ""))


class _Channels:
    """Selects the channels for a step; the list of channels is read once."""

    def __init__(self) -> None:
        self._all = list(Channel.objects.all())
        self._enabled = [each for each in self._all if each.enabled]

    def of(self, event: IncidentEvent, notified: set[int]) -> list[Channel]:
        incident = event.incident
        if event.kind == IncidentEventKind.RESOLVED:
            if incident.inhibited_by_id is not None:
                return [each for each in self._enabled if each.pk in notified]
            return list({each.pk: each for each in [*self._chosen(incident), *self._among(notified)]}.values())
        return self._chosen(incident)

    def _chosen(self, incident: Incident) -> list[Channel]:
        named = list(incident.rule.channels.all()) if incident.rule is not None else []
        return [each for each in named if each.enabled] if named else self._enabled

    def _among(self, pks: set[int]) -> list[Channel]:
        return [each for each in self._enabled if each.pk in pks]


def _notification(event: IncidentEvent, channel: Channel, now: datetime) -> Notification:
    opened = REASONS[IncidentEventKind(event.kind)] is NotificationReason.OPENED
    hidden = opened and event.incident.inhibited_by_id is not None
    return Notification(
        event=event,
        channel=channel,
        reason=REASONS[IncidentEventKind(event.kind)],
        state=NotificationState.HELD if hidden else NotificationState.WAITING,
        due_at=now + timedelta(seconds=channel.group_wait_s),
        **columns("why", NotifyReason.HIDDEN(incident=event.incident.inhibited_by_id) if hidden else ""),
    )


def _notified_channels(ended: Iterable[IncidentEvent]) -> dict[int, set[int]]:
    """Return, per incident, the channels that were notified of it: the channels of its rule may have changed since."""
    gathered = Notification.objects.filter(
        event__incident__in=[event.incident_id for event in ended], state=NotificationState.GATHERED
    )
    notified: dict[int, set[int]] = {}
    for incident, channel in gathered.values_list("event__incident_id", "channel_id"):
        notified.setdefault(incident, set()).add(channel)
    return notified


def _drop_held(ended: Iterable[IncidentEvent]) -> None:
    held = Notification.objects.filter(
        event__incident__in=[event.incident_id for event in ended], state=NotificationState.HELD
    )
    held.update(state=NotificationState.DROPPED, **columns("why", NotifyReason.OVER_WHILE_HIDDEN()))
