"""Write the shift summaries of channels when they are due, each exactly once.

A summary and the channel's next time are written in one transaction. If the worker dies before its end, nothing has
changed. The key of the message names the channel and the time, so that no other worker writes it again.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring.models import Channel, Delivery
from monitoring.notify.message import message_of
from monitoring.notify.shift import as_json, read_shift
from monitoring.notify.wording.texts import subject_of
from monitoring.reasons.reason import SOURCE
from monitoring.savepoints.timetable import BadSchedule, Cron

log = logging.getLogger(__name__)

# If Waymark was down, it writes only the newest missed summary, and only if that is younger than this.
CAUGHT_UP = timedelta(days=1)


def write_due(now: datetime) -> int:
    """Write the summary of every channel whose time has come, and return their number."""
    scheduled = Channel.objects.filter(enabled=True).exclude(summary_cron="")
    due = scheduled.filter(Q(next_summary_at=None) | Q(next_summary_at__lte=now))
    return sum(_write(channel, now) for channel in list(due.order_by("pk").values_list("pk", flat=True)))


@transaction.atomic
def _write(channel_id: int, now: datetime) -> int:
    rows = Channel.objects.select_for_update(skip_locked=True, of=("self",))
    channel = rows.filter(pk=channel_id, enabled=True).exclude(summary_cron="").first()
    if channel is None:
        return 0  # another worker has locked the channel
    try:
        times = Cron(channel.summary_cron, channel.summary_time_zone)
    except BadSchedule:
        log.exception("channel %s: the times of its summaries cannot be read", channel)
        return 0
    due = _newest_due(times, channel.next_summary_at, now)
    Channel.objects.filter(pk=channel.pk).update(next_summary_at=_next(times, now))
    if due is None:
        return 0
    key = f"shift-{channel.pk}-{due:%Y%m%d%H%M}"
    if Delivery.objects.filter(key=key).exists():
        return 0
    summary = as_json(read_shift(due - timedelta(hours=channel.summary_hours), due))
    delivery = Delivery(channel=channel, key=key, summary=summary, created_at=now, next_try_at=now)
    delivery.subject = subject_of(message_of(delivery), SOURCE)
    delivery.save()
    return 1


def _newest_due(times: Cron, first: datetime | None, now: datetime) -> datetime | None:
    """Return the newest time from `first` to `now`; None if there is none, or if the first one is not known yet."""
    if first is None or first > now:
        return None
    due, after = first, max(first, now - CAUGHT_UP)
    while (after := _next(times, after)) <= now:
        due = after
    return due if due > now - CAUGHT_UP else None


def _next(times: Cron, after: datetime) -> datetime:
    return times.after(after, 0, timedelta())
