"""The transactional outbox: a message exists if, and only if, the change it tells of was committed."""

from __future__ import annotations

import uuid
from datetime import datetime

from monitoring.models import Channel, Delivery, IncidentEvent


def write(event: IncidentEvent, now: datetime) -> int:
    """One delivery per enabled channel of the event's rule, in the caller's transaction; returns how many.

    A rule that names no channel, and an incident without a rule, go to every enabled channel.
    """
    rule = event.incident.rule
    chosen = rule.channels.all() if rule is not None and rule.channels.exists() else Channel.objects.all()
    deliveries = [
        Delivery(event=event, channel=channel, key=uuid.uuid4().hex, next_try_at=now)
        for channel in chosen.filter(enabled=True)
    ]
    return len(Delivery.objects.bulk_create(deliveries))
