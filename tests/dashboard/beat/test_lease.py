"""A lease has one holder at a time, and a process that has lost the lease knows it."""

from __future__ import annotations

import pytest
from redis import Redis, RedisError

from checkpointing.clock import ManualClock
from dashboard.beat.lease import Lease
from monitoring import broker


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lease(redis: Redis, token: str, clock: ManualClock, ttl_s: float = 30) -> Lease:
    return Lease(redis, "test:lease", token, ttl_s, clock)


def test_second_process_learns_the_holder_of_the_lease(redis: Redis, clock: ManualClock) -> None:
    first, second = lease(redis, "a", clock), lease(redis, "b", clock)
    assert (first.acquire(), second.acquire()) == ("a", "a")
    assert (first.is_held, second.is_held) == (True, False)


def test_lease_expires_on_the_local_clock_unless_renewed(redis: Redis, clock: ManualClock) -> None:
    mine = lease(redis, "a", clock)
    mine.acquire()
    clock.advance(29)
    assert mine.is_held
    mine.acquire()
    clock.advance(29)
    assert mine.is_held
    clock.advance(1)
    assert not mine.is_held, "a process that was stopped wakes up with nothing"


def test_released_lease_is_available_at_once(redis: Redis, clock: ManualClock) -> None:
    first, second = lease(redis, "a", clock), lease(redis, "b", clock)
    first.acquire()
    second.release()
    assert second.acquire() == "a", "nobody releases another's"
    first.release()
    assert (second.acquire(), first.acquire()) == ("b", "b")


def test_lease_can_be_acquired_after_redis_is_emptied(redis: Redis, clock: ManualClock) -> None:
    first, second = lease(redis, "a", clock), lease(redis, "b", clock)
    first.acquire()
    redis.flushall()
    assert second.acquire() == "b"
    assert first.acquire() == "b"
    assert not first.is_held


def test_lease_stays_valid_without_redis_until_it_expires(redis: Redis, clock: ManualClock) -> None:
    nowhere = broker.connect("redis://127.0.0.1:1/0", limit_s=0.2)
    mine = lease(nowhere, "a", clock)
    with pytest.raises(RedisError):
        mine.acquire()
    assert not mine.is_held
