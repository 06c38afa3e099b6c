"""Sends what is in the outbox.

1. Claim a row by a conditional UPDATE; a claim ends by itself, so a worker that dies loses nothing.
2. Send, in threads, with no transaction and no database connection: a slow receiver holds up neither.
3. Mark the row, again conditionally: only if the claim is still ours.
A worker that dies between 2 and 3 sends again, under the same key: at least once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from monitoring.alerts.notify.backoff import next_wait
from monitoring.alerts.notify.message import Failed, Message, Sent, message_of
from monitoring.alerts.notify.transports import transport_of
from monitoring.models import Channel, Delivery, DeliveryState

BATCH = 16
THREADS = 8
CLAIM = timedelta(seconds=90)  # two rounds of threads, each within a transport's time limit, and room to spare
LOG_ENTRIES = 20


@dataclass(frozen=True)
class _Claimed:
    delivery: Delivery
    channel: Channel
    message: Message
    until: datetime


def deliver_due(now: datetime, jitter: Callable[[], float] = random.random) -> str:
    """Try every message whose time has come, up to one batch; says in a sentence what came of it."""
    outcome: Counter[str] = Counter()
    outcome["given up"] += _give_up_switched_off(now)
    claimed = [each for delivery in _due(now) if (each := _claim(delivery, now))]
    if claimed:
        with ThreadPoolExecutor(min(THREADS, len(claimed))) as pool:
            answers = list(pool.map(lambda each: _send(each, now), claimed))
        for each, answer in zip(claimed, answers, strict=True):
            outcome[_mark(each, answer, now, jitter)] += 1
    done = ", ".join(f"{count} {what}" for what, count in outcome.items() if count)
    return f"Notifications: {done}." if done else "No notification was due."


def _due(now: datetime) -> list[Delivery]:
    free = Q(claimed_until=None) | Q(claimed_until__lte=now)
    return list(
        Delivery.objects.filter(free, state=DeliveryState.PENDING, next_try_at__lte=now)
        .select_related("channel", "event__incident__job", "event__incident__cluster")
        .order_by("next_try_at", "id")[:BATCH]
    )


def _claim(delivery: Delivery, now: datetime) -> _Claimed | None:
    until = now + CLAIM
    claimed = Delivery.objects.filter(
        pk=delivery.pk, state=DeliveryState.PENDING, claimed_until=delivery.claimed_until
    ).update(claimed_until=until)
    if not claimed:
        return None
    return _Claimed(delivery, delivery.channel, message_of(delivery), until)


def _send(each: _Claimed, now: datetime) -> Sent | Failed:
    return transport_of(each.channel.kind).send(each.channel, each.message, now)


def _mark(each: _Claimed, answer: Sent | Failed, now: datetime, jitter: Callable[[], float]) -> str:
    delivery = each.delivery
    tries = delivery.attempts + 1
    changes: dict[str, object] = {
        "attempts": tries,
        "claimed_until": None,
        "log": _logged(delivery, answer.answer, now),
    }
    match answer:
        case Sent():
            changes |= {"state": DeliveryState.SENT, "sent_at": now}
            outcome = "sent"
        case Failed(permanent=permanent, retry_after_s=retry_after_s):
            wait = None if permanent else next_wait(tries, retry_after_s, jitter)
            changes |= {"state": DeliveryState.DEAD} if wait is None else {"next_try_at": now + wait}
            outcome = "given up" if wait is None else "to be tried again"
    still_ours = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.PENDING, claimed_until=each.until)
    return outcome if still_ours.update(**changes) else "overtaken by another worker"


def _logged(delivery: Delivery, answer: str, now: datetime) -> list[dict[str, str]]:
    return [*delivery.log, {"at": now.isoformat(), "answer": answer}][-LOG_ENTRIES:]


def _give_up_switched_off(now: datetime) -> int:
    waiting = Delivery.objects.filter(state=DeliveryState.PENDING, channel__enabled=False)
    return sum(
        Delivery.objects.filter(pk=each.pk, state=DeliveryState.PENDING).update(
            state=DeliveryState.DEAD, log=_logged(each, "The channel was switched off.", now)
        )
        for each in waiting[:BATCH]
    )
