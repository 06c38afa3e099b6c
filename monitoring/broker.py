"""All access to Redis other than Celery's: the queue of ticks, and the signs of life of beat and the workers.

Redis needs no backup: live processes write all of this data again within seconds.
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
HEARTBEAT_EVERY_S = 2.0
# A sign expires this long after its process has written it last.
_HEARTBEAT_TTL_S = 60
_SIGNS = "waymark:sign:"


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life. `kind`: "beat" or "worker"; `name` identifies the process; `facts`: what the process reports."""

    kind: str
    name: str
    at: datetime
    facts: Mapping[str, Any]


def connect(url: str = "", limit_s: float = ANSWER_LIMIT_S) -> Redis:
    """Return a client, which connects at its first call and raises redis.RedisError without an answer in `limit_s`."""
    return Redis.from_url(
        url or settings.CELERY_BROKER_URL,
        socket_timeout=limit_s,
        socket_connect_timeout=limit_s,
        decode_responses=True,
    )


def process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def waiting(redis: Redis) -> int:
    """Return the number of ticks that no worker has taken yet."""
    return int(redis.llen(QUEUE))


def write_heartbeat(redis: Redis, kind: str, **facts: Any) -> None:
    """Store a sign of life of this process, which is a `kind`."""
    redis.set(f"{_SIGNS}{kind}:{process_name()}", json.dumps(facts), ex=_HEARTBEAT_TTL_S)


def remove_heartbeat(redis: Redis, kind: str) -> None:
    redis.delete(f"{_SIGNS}{kind}:{process_name()}")


def heartbeats(redis: Redis, now: datetime) -> list[Heartbeat]:
    """Return the signs of the last minute. Redis computes their ages, because a process's clock may be wrong."""
    keys = sorted(redis.scan_iter(match=f"{_SIGNS}*", count=1000))
    with redis.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.get(key)
            pipeline.pttl(key)
        answers = pipeline.execute()
    found = zip(keys, answers[::2], answers[1::2], strict=True)
    return [_heartbeat(key, text, ttl, now) for key, text, ttl in found if text]


def _heartbeat(key: str, text: str, ttl_ms: int, now: datetime) -> Heartbeat:
    kind, _, name = key.removeprefix(_SIGNS).partition(":")
    age = timedelta(seconds=_HEARTBEAT_TTL_S) - timedelta(milliseconds=max(ttl_ms, 0))
    return Heartbeat(kind, name, now - age, json.loads(text))
