"""Delete old messages, their tries, and dropped notifications. Incidents and their events stay.

Notifications of an unresolved incident are kept, however old: a channel that was notified of its start must be notified
of its end. Pending messages are kept, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef

from monitoring.models import (
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    IncidentState,
    Notification,
    NotificationState,
)

BATCH = 2000
BATCHES = 10  # per call; the next call deletes the remaining rows


def forget_old(now: datetime, kept: timedelta) -> int:
    """Delete messages and dropped notifications older than `kept`, and return their number."""
    gone = 0
    for _ in range(BATCHES):
        some = _delete_messages(now - kept) + _delete_unsent(now - kept)
        if not some:
            break
        gone += some
    return gone


@transaction.atomic
def _delete_messages(before: datetime) -> int:
    unresolved = Notification.objects.filter(delivery=OuterRef("pk")).exclude(
        event__incident__state=IncidentState.RESOLVED
    )
    old = Delivery.objects.filter(created_at__lt=before).exclude(state=DeliveryState.PENDING)
    some = list(old.exclude(Exists(unresolved)).order_by("pk").values_list("pk", flat=True)[:BATCH])
    DeliveryAttempt.objects.filter(delivery__in=some).delete()
    Notification.objects.filter(delivery__in=some).delete()
    Delivery.objects.filter(pk__in=some).delete()
    return len(some)


def _delete_unsent(before: datetime) -> int:
    dropped = Notification.objects.filter(state=NotificationState.DROPPED, event__at__lt=before)
    over = dropped.filter(event__incident__state=IncidentState.RESOLVED)
    some = list(over.order_by("pk").values_list("pk", flat=True)[:BATCH])
    Notification.objects.filter(pk__in=some).delete()
    return len(some)
