"""A lease in Redis: the process that holds a key with an expiry may act."""

from __future__ import annotations

from typing import Any

from redis import Redis

from checkpointing.clock import Clock

# Take or renew the lease, also after Redis was emptied. Return the owner's token.
_ACQUIRE_SCRIPT = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return owner end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_RELEASE_SCRIPT = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Lease:
    """A lease with one holder at a time, which is identified by its `token`. Each token is used by only one object.

    Its end is computed on the monotonic clock from the *start* of the last successful renewal. So it ends in this
    process before it ends in Redis, and a suspended or disconnected process knows that it has lost the lease.
    """

    def __init__(self, redis: Redis, key: str, token: str, ttl_s: float, clock: Clock) -> None:
        self._key, self._token, self._ttl_ms = key, token, round(ttl_s * 1000)
        self._clock = clock
        self._until = 0.0
        self._acquire_script: Any = redis.register_script(_ACQUIRE_SCRIPT)
        self._release_script: Any = redis.register_script(_RELEASE_SCRIPT)

    @property
    def is_held(self) -> bool:
        return self._clock.monotonic() < self._until

    def acquire(self) -> str:
        """Take or renew the lease, and return the token of its holder.

        Raises:
            redis.RedisError: The holder is unknown. A lease that this object holds is valid until its end.
        """
        requested_at = self._clock.monotonic()
        owner = str(self._acquire_script(keys=[self._key], args=[self._token, self._ttl_ms]))
        self._until = requested_at + self._ttl_ms / 1000 if owner == self._token else 0.0
        return owner

    def release(self) -> None:
        """Release the lease, so that another process can take it before its end. Raises redis.RedisError."""
        self._until = 0.0
        self._release_script(keys=[self._key], args=[self._token])
