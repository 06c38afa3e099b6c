"""The one door to Redis beside Celery's own: the queue of ticks, and the signs of life of beat and the workers.

Nothing in Redis is worth keeping: it is all written again within seconds by whoever lives.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from redis import Redis

QUEUE = "celery"  # Celery's default queue: the only one in use
ANSWER_LIMIT_S = 2.0
SIGN_EVERY_S = 2.0
# A sign is shown for this long after its writer fell silent.
_SIGN_KEPT_S = 60
_SIGNS = "waymark:sign:"


@dataclass(frozen=True)
class Sign:
    """`kind`: "beat" or "worker"; `name` tells one of its processes from another; `facts`: what it said of itself."""

    kind: str
    name: str
    at: datetime
    facts: Mapping[str, Any]


def connect(url: str = "", limit_s: float = ANSWER_LIMIT_S) -> Redis:
    """A client that connects with its first call, and raises redis.RedisError when no answer comes in `limit_s`."""
    return Redis.from_url(
        url or settings.CELERY_BROKER_URL,
        socket_timeout=limit_s,
        socket_connect_timeout=limit_s,
        decode_responses=True,
    )


def process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def waiting(redis: Redis) -> int:
    """How many ticks no worker has taken yet."""
    return int(redis.llen(QUEUE))


def leave_sign(redis: Redis, kind: str, **facts: Any) -> None:
    """Say that this process, a `kind`, lives."""
    redis.set(f"{_SIGNS}{kind}:{process_name()}", json.dumps(facts), ex=_SIGN_KEPT_S)


def remove_sign(redis: Redis, kind: str) -> None:
    redis.delete(f"{_SIGNS}{kind}:{process_name()}")


def signs(redis: Redis, now: datetime) -> list[Sign]:
    """Those of every process that lived within the last minute. How old each is, Redis knows: its writer's clock may be
    wrong."""
    keys = sorted(redis.scan_iter(match=f"{_SIGNS}*", count=1000))
    with redis.pipeline(transaction=False) as asked:
        for key in keys:
            asked.get(key)
            asked.pttl(key)
        answers = asked.execute()
    told = zip(keys, answers[::2], answers[1::2], strict=True)
    return [_sign(key, text, ttl, now) for key, text, ttl in told if text]


def _sign(key: str, text: str, ttl_ms: int, now: datetime) -> Sign:
    kind, _, name = key.removeprefix(_SIGNS).partition(":")
    age = timedelta(seconds=_SIGN_KEPT_S) - timedelta(milliseconds=max(ttl_ms, 0))
    return Sign(kind, name, now - age, json.loads(text))
