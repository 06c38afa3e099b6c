"""How often somebody may ask, counted in Redis for all web processes together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from redis import Redis, RedisError

from monitoring import broker

log = logging.getLogger(__name__)

_QUICK_S = 0.5  # an answer is worth waiting that long for the count


@dataclass(frozen=True)
class Limit:
    """At most `most` in each window of `per_s` seconds."""

    name: str
    most: int
    per_s: int


def seconds_to_wait(limit: Limit, who: str, redis: Redis | None = None, wall: Callable[[], float] = time.time) -> int:
    """Counts one; 0: it is allowed, else so many seconds until the next window.

    While Redis is away nothing is counted and all is allowed: a limit protects the service, and must not stop it.
    """
    place, into = divmod(int(wall()), limit.per_s)
    key = f"waymark:limit:{limit.name}:{who}:{place}"
    try:
        with (redis or _redis()).pipeline(transaction=False) as asked:
            asked.incr(key)
            asked.expire(key, limit.per_s + 1)
            count, _ = asked.execute()
    except RedisError as error:
        log.warning("calls are not counted, Redis is away: %s", error)
        return 0
    return 0 if count <= limit.most else limit.per_s - into


def _redis() -> Redis:
    from django.conf import settings

    return _connected(settings.CELERY_BROKER_URL)


@cache
def _connected(url: str) -> Redis:
    """A pool of connections for the life of the process."""
    return broker.connect(url, _QUICK_S)
