"""Rate limits, counted in Redis for all web processes together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from redis import Redis, RedisError

from monitoring import broker

log = logging.getLogger(__name__)

_QUICK_S = 0.5  # the longest wait for Redis in a request


@dataclass(frozen=True)
class Limit:
    """A limit of `most` calls in each window of `per_s` seconds."""

    name: str
    most: int
    per_s: int


def seconds_to_wait(limit: Limit, who: str, redis: Redis | None = None, wall: Callable[[], float] = time.time) -> int:
    """Count a call. Return 0 if it is allowed, else the seconds until the next window.

    If Redis does not answer, every call is allowed: a limit protects the service and must not stop it.
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
    """Return a pool of connections, which exists as long as the process."""
    return broker.connect(url, _QUICK_S)
