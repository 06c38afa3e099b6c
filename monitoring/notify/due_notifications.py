"""Gather due notifications into messages.

One worker at a time handles a channel and locks its row. It decides for every notification whether to send it, and with
which others (`verdict.py`). It writes the messages and the follow-ups (next repetition, escalation) in the same
transaction. If the worker dies, nothing has changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from django.db import transaction
from django.db.models import Count, Q

from monitoring.alerts import inhibition, maintenance
from monitoring.models import (
    Channel,
    Delivery,
    DeliveryState,
    Incident,
    IncidentState,
    Notification,
    NotificationReason,
    NotificationState,
)
from monitoring.notify.message import message_of, reason_of
from monitoring.notify.verdict import Drop, Facts, Go, Planned, Wait, group_of, judge, plan
from monitoring.notify.wording.texts import subject_of
from monitoring.reasons.columns import columns, store
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import SOURCE

BATCH = 1000
RATE_WINDOW = timedelta(minutes=10)
# Notifications that start repetitions and escalations.
FIRST_WORDS = frozenset({NotificationReason.OPENED, NotificationReason.WOKEN})


def gather_due(now: datetime) -> int:
    """Write the messages of every channel with due notifications, and return their number."""
    due = Notification.objects.filter(state=NotificationState.WAITING, due_at__lte=now)
    channels = due.values_list("channel_id", flat=True).distinct().order_by("channel_id")
    return sum(_gather(channel, now) for channel in list(channels))


@transaction.atomic
def _gather(channel_id: int, now: datetime) -> int:
    rows = Channel.with_removed.select_for_update(
        skip_locked=True, of=("self",)
    )  # all notifications of a removed channel are dropped
    channel = rows.filter(pk=channel_id).first()
    if channel is None:
        return 0  # another worker handles the channel
    ready = _may_go(channel, _together(channel, now), now)
    slots, free_at = _slots(channel, now)
    planned = plan(ready, slots)
    if ready and not planned:
        _hold_back(ready, channel, free_at)
    deliveries = [_write(channel, each, now) for each in planned]
    return len(deliveries)


def _together(channel: Channel, now: datetime) -> list[Notification]:
    """Return the due notifications, and others of their groups that become due within the channel's group wait."""
    soon = now + timedelta(seconds=channel.group_wait_s)
    waiting = list(
        Notification.objects.filter(channel=channel, state=NotificationState.WAITING, due_at__lte=soon)
        .select_related("event__incident__job", "event__incident__cluster")
        .order_by("due_at", "id")
    )
    due = {group_of(each) for each in waiting if each.due_at <= now}
    return [each for each in waiting if group_of(each) in due]


def _may_go(channel: Channel, waiting: Sequence[Notification], now: datetime) -> list[Notification]:
    facts = _Facts(channel, waiting, now)
    ready = []
    others: dict[Wait | Drop, list[Notification]] = {}
    for each in waiting:
        verdict = judge(facts.of(each))
        if isinstance(verdict, Go):
            ready.append(each)
        else:
            others.setdefault(verdict, []).append(each)
    for verdict, those in others.items():
        Notification.objects.filter(pk__in=[each.pk for each in those]).update(**_changes(verdict))
        if isinstance(verdict, Wait) and verdict.until is None:
            facts.hide([each.event.incident for each in those], now)
    return ready


def _changes(verdict: Wait | Drop) -> dict[str, object]:
    match verdict:
        case Drop(why):
            return {**columns("why", why), "state": NotificationState.DROPPED}
        case Wait(None, why):
            return {**columns("why", why), "state": NotificationState.HELD}
        case Wait(until, why, None):
            return {**columns("why", why), "due_at": until}
        case Wait(until, why, window):
            return {**columns("why", why), "due_at": until, "silenced_by": window}
        case _:
            assert_never(verdict)


class _Facts:
    """The facts for verdicts, read once for all notifications of a channel."""

    def __init__(self, channel: Channel, waiting: Iterable[Notification], now: datetime) -> None:
        incidents = {each.event.incident_id: each.event.incident for each in waiting}
        self._channel = channel
        self._windows = maintenance.active_windows(now)
        self._inhibitors = inhibition.inhibitors([c for each in incidents.values() if (c := each.cluster_id)])
        gathered = Notification.objects.filter(
            channel=channel, event__incident__in=incidents, state=NotificationState.GATHERED
        )
        self._told = set(gathered.values_list("event__incident_id", flat=True))
        pending = gathered.filter(delivery__state=DeliveryState.PENDING)
        self._on_the_way = dict(pending.values_list("event__incident_id", "delivery__next_try_at"))
        self._now = now

    def of(self, each: Notification) -> Facts:
        incident = each.event.incident
        return Facts(
            reason=NotificationReason(each.reason),
            state=IncidentState(incident.state),
            acknowledged_by=incident.acknowledged_by,
            snoozed_until=incident.snoozed_until,
            hidden_by=self._hidden_by(incident),
            was_notified=incident.pk in self._told,
            window=maintenance.covering(incident, self._windows),
            earlier_until=self._earlier_until(incident),
            channel_enabled=self._channel.enabled,
        )

    def hide(self, incidents: Sequence[Incident], now: datetime) -> None:
        """Store which incident hides `incidents`, if it opened after them, so that its end can notify about them."""
        for cluster, parent in self._inhibitors.items():
            unseen = [each.pk for each in incidents if each.cluster_id == cluster and each.inhibited_by_id != parent.pk]
            if unseen:
                inhibition.hide(Incident.objects.filter(pk__in=unseen), parent, now)

    def _hidden_by(self, incident: Incident) -> int | None:
        parent = self._inhibitors.get(incident.cluster_id or 0) if incident.job_id else None
        return parent.pk if parent else None

    def _earlier_until(self, incident: Incident) -> datetime | None:
        """Return a time just after the next try of the incident's earlier message, None if there is none."""
        at = self._on_the_way.get(incident.pk)
        return max(at, self._now) + timedelta(seconds=1) if at else None


def _slots(channel: Channel, now: datetime) -> tuple[int, datetime]:
    """Return how many more messages the channel's limit allows now, and when it allows the next one."""
    recent = Delivery.objects.filter(channel=channel, is_test=False, created_at__gt=now - RATE_WINDOW)
    made = list(recent.order_by("created_at").values_list("created_at", flat=True))
    free_at = made[-channel.messages_per_10_min] + RATE_WINDOW if len(made) >= channel.messages_per_10_min else now
    return channel.messages_per_10_min - len(made), free_at


def _hold_back(ready: Sequence[Notification], channel: Channel, until: datetime) -> None:
    why = NotifyReason.CHANNEL_FULL(count=channel.messages_per_10_min)
    pks = [each.pk for each in ready]
    Notification.objects.filter(pk__in=pks).update(due_at=until, **columns("why", why))


def _write(channel: Channel, planned: Planned, now: datetime) -> Delivery:
    delivery = Delivery.objects.create(
        channel=channel, key=uuid.uuid4().hex, is_digest=planned.is_digest, created_at=now, next_try_at=now
    )
    members = planned.members
    hidden = _hidden_counts([each.event.incident for each in members])
    for each in members:
        store(each, "text", reason_of(each, hidden.get(each.event.incident_id, (0, 0))))
    Notification.objects.bulk_update(members, ["text", "text_value"], batch_size=BATCH)
    gathered = {"state": NotificationState.GATHERED, "delivery": delivery, **columns("why", "")}
    Notification.objects.filter(pk__in=[each.pk for each in members]).update(**gathered)
    delivery.subject = subject_of(message_of(delivery), SOURCE)
    delivery.save(update_fields=["subject"])
    _follow_up(channel, members, now)
    return delivery


def _hidden_counts(incidents: Sequence[Incident]) -> dict[int, tuple[int, int]]:
    """Return by incident how many other incidents it hid, and how many of those are unresolved."""
    hidden = Incident.objects.filter(inhibited_by__in=incidents).order_by().values("inhibited_by")
    counted = hidden.annotate(hid=Count("pk"), left=Count("pk", filter=~Q(state=IncidentState.RESOLVED)))
    rows = counted.values_list("inhibited_by", "hid", "left")
    return {parent: (hid, left) for parent, hid, left in rows if parent is not None}


def _follow_up(channel: Channel, members: Sequence[Notification], now: datetime) -> None:
    """Schedule a repetition on this channel and an escalation to another one, until somebody acknowledges."""
    again = [each for each in members if each.reason != NotificationReason.RESOLVED] if channel.repeat_every_s else []
    rows = [
        _next(each, channel, NotificationReason.REPEAT, now + timedelta(seconds=channel.repeat_every_s or 0))
        for each in again
    ]
    other = channel.escalate_to
    if other is not None and other.enabled and channel.escalate_after_s:
        at = now + timedelta(seconds=channel.escalate_after_s)
        first = [each for each in members if each.reason in {*FIRST_WORDS, NotificationReason.ESCALATION}]
        rows += [_next(each, other, NotificationReason.ESCALATION, at) for each in first]
    Notification.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)


def _next(each: Notification, channel: Channel, reason: NotificationReason, at: datetime) -> Notification:
    return Notification(event=each.event, channel=channel, reason=reason, due_at=at)
