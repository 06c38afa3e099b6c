"""Assemble messages and send them.

1. Gather due notifications into messages (`due_notifications.py`), and write due shift summaries (`summaries.py`).
2. Claim a message by a conditional UPDATE. A claim expires, so a message is not lost if its worker dies.
3. Send in threads without a transaction or a database connection, so that a slow receiver blocks neither.
4. Store the outcome, again conditionally: only if this worker still holds the claim. Each try is a row.
If a worker dies between 3 and 4, the message is sent again with the same key: delivery is at least once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring.models import AttemptOutcome, Channel, Delivery, DeliveryAttempt, DeliveryState
from monitoring.notify.due_notifications import gather_due
from monitoring.notify.message import Failed, Message, Sent, message_of
from monitoring.notify.summaries import write_due
from monitoring.notify.transports import transport_of
from monitoring.reasons.columns import columns
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

BATCH = 16
THREADS = 8
CLAIM = timedelta(seconds=90)  # enough for two rounds of threads, each at most as long as a transport may take
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 3600.0
# With these waits the last try comes about 85 minutes after the first: a channel may be down for an hour.
MAX_TRIES = 10
_REPORTED = {
    AttemptOutcome.SENT: WorkReason.NOTIFICATIONS_SENT,
    AttemptOutcome.AGAIN: WorkReason.NOTIFICATIONS_RETRIED,
    AttemptOutcome.GIVEN_UP: WorkReason.NOTIFICATIONS_GIVEN_UP,
}


@dataclass(frozen=True)
class Claimed:
    """A message that only this worker may send until `until`."""

    delivery: Delivery
    channel: Channel
    message: Message
    until: datetime


def deliver_due(now: datetime, jitter: Callable[[], float] = random.random) -> CycleReport:
    """Gather due notifications into messages, write due summaries, then send the due messages, at most one batch."""
    outcome: Counter[WorkReason] = Counter()
    gather_due(now)
    write_due(now)
    outcome[WorkReason.NOTIFICATIONS_GIVEN_UP] += _give_up_switched_off(now)
    claimed = [each for delivery in _due(now) if (each := _claim(delivery, now))]
    if claimed:
        with ThreadPoolExecutor(min(THREADS, len(claimed))) as pool:
            answers = list(pool.map(lambda each: send(each, now), claimed))
        for each, answer in zip(claimed, answers, strict=True):
            outcome[mark(each, answer, now, jitter)] += 1
    done = [what(count=count) for what, count in outcome.items() if count]
    return CycleReport((WorkReason.NOTIFICATIONS(done=done),) if done else ())


def send(each: Claimed, now: datetime) -> Sent | Failed:
    return transport_of(each.channel.kind).send(each.channel, each.message, now)


@transaction.atomic
def mark(each: Claimed, answer: Sent | Failed, now: datetime, jitter: Callable[[], float]) -> WorkReason:
    delivery = each.delivery
    tries = delivery.attempts + 1
    changes: dict[str, object] = {"attempts": tries, "claimed_until": None}
    match answer:
        case Sent():
            changes |= {"state": DeliveryState.SENT, "sent_at": now}
            outcome = AttemptOutcome.SENT
        case Failed(permanent=permanent, retry_after_s=retry_after_s):
            wait = None if permanent or delivery.is_test else next_wait(tries, retry_after_s, jitter)
            changes |= {"state": DeliveryState.DEAD} if wait is None else {"next_try_at": now + wait}
            outcome = AttemptOutcome.GIVEN_UP if wait is None else AttemptOutcome.AGAIN
    still_ours = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.PENDING, claimed_until=each.until)
    if not still_ours.update(**changes):
        return WorkReason.OVERTAKEN
    DeliveryAttempt.objects.create(delivery=delivery, at=now, outcome=outcome, **columns("answer", answer.answer))
    return _REPORTED[outcome]


def next_wait(tries: int, retry_after_s: float | None, jitter: Callable[[], float]) -> timedelta | None:
    """Return the wait after the `tries`-th failed try, None to give up.

    The wait doubles each time. ±20 % jitter spreads the retries of many messages. A retry is never earlier than the
    receiver's Retry-After.
    """
    if tries >= MAX_TRIES:
        return None
    wait = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S) * (0.8 + 0.4 * jitter())
    return timedelta(seconds=max(wait, min(retry_after_s or 0.0, LONGEST_WAIT_S)))


def _due(now: datetime) -> list[Delivery]:
    free = Q(claimed_until=None) | Q(claimed_until__lte=now)
    due = Delivery.objects.filter(free, state=DeliveryState.PENDING, is_test=False, next_try_at__lte=now)
    return list(due.select_related("channel").order_by("next_try_at", "id")[:BATCH])


def _claim(delivery: Delivery, now: datetime) -> Claimed | None:
    until = now + CLAIM
    claimed = Delivery.objects.filter(
        pk=delivery.pk, state=DeliveryState.PENDING, claimed_until=delivery.claimed_until
    ).update(claimed_until=until)
    if not claimed:
        return None
    return Claimed(delivery, delivery.channel, message_of(delivery), until)


@transaction.atomic
def _give_up_switched_off(now: datetime) -> int:
    waiting = Delivery.objects.filter(state=DeliveryState.PENDING, is_test=False, channel__enabled=False)[:BATCH]
    given_up = [
        each
        for each in waiting
        if Delivery.objects.filter(pk=each.pk, state=DeliveryState.PENDING).update(state=DeliveryState.DEAD)
    ]
    why = columns("answer", NotifyReason.SWITCHED_OFF())
    DeliveryAttempt.objects.bulk_create(
        DeliveryAttempt(delivery=each, at=now, outcome=AttemptOutcome.GIVEN_UP, **why) for each in given_up
    )
    return len(given_up)
