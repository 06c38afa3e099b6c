"""Who may act: whoever holds a key of Redis that ends by itself."""

from __future__ import annotations

from typing import Any

from redis import Redis

from checkpointing.clock import Clock

# Takes the lease, renews it, and makes it anew where somebody emptied Redis. Returns the owner's token.
_HOLD = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return owner end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Lease:
    """One holder at a time, named by its `token`, which nobody else may ever use.

    It ends here before it ends in Redis: it is counted on the monotonic clock from the *start* of the last renewal that
    succeeded. So a process that was stopped, or cut off, knows that it holds nothing any more before it acts again.
    """

    def __init__(self, redis: Redis, key: str, token: str, ttl_s: float, clock: Clock) -> None:
        self._key, self._token, self._ttl_ms = key, token, round(ttl_s * 1000)
        self._clock = clock
        self._until = 0.0
        self._hold: Any = redis.register_script(_HOLD)
        self._release: Any = redis.register_script(_RELEASE)

    @property
    def held(self) -> bool:
        return self._clock.monotonic() < self._until

    def hold(self) -> str:
        """Take or renew it; returns the token of whoever holds it now. Raises redis.RedisError: nobody can say, and a
        lease that is held runs to its end."""
        asked = self._clock.monotonic()
        owner = str(self._hold(keys=[self._key], args=[self._token, self._ttl_ms]))
        self._until = asked + self._ttl_ms / 1000 if owner == self._token else 0.0
        return owner

    def release(self) -> None:
        """Let the next one in at once instead of when the lease ends. Raises redis.RedisError."""
        self._until = 0.0
        self._release(keys=[self._key], args=[self._token])
