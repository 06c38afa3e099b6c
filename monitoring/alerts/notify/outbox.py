"""The transactional outbox: a message exists if, and only if, the change it tells of was committed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db.models import prefetch_related_objects

from monitoring.models import Channel, Delivery, Incident, IncidentEvent


def write(events: Sequence[IncidentEvent], now: datetime) -> int:
    """One delivery per enabled channel of each event's rule, in the caller's transaction; returns how many.

    A rule that names no channel, and an incident without a rule, go to every enabled channel. Nobody is told of an
    incident that another one speaks for.
    """
    told = [event for event in events if event.incident.inhibited_by_id is None]
    prefetch_related_objects([event.incident for event in told], "rule__channels")
    everyone = list(Channel.objects.all())
    deliveries = [
        Delivery(event=event, channel=channel, key=uuid.uuid4().hex, next_try_at=now)
        for event in told
        for channel in channels_of(event.incident, everyone)
    ]
    return len(Delivery.objects.bulk_create(deliveries, batch_size=1000))


def channels_of(incident: Incident, everyone: Sequence[Channel]) -> list[Channel]:
    chosen = list(incident.rule.channels.all()) if incident.rule is not None else []
    return [channel for channel in chosen or everyone if channel.enabled]
