"""One beat sends tasks, none sends without Redis or workers, and the next holder continues the schedule."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from checkpointing.clock import ManualClock
from dashboard.beat.scheduler import LEASE_S, LeasedScheduler
from monitoring import broker

MakeBeat = Callable[..., LeasedScheduler]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(datetime.now(UTC).timestamp() * 1000))


@pytest.fixture
def make_beat(redis: Redis, redis_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> MakeBeat:
    """Return a function that creates beats as on different machines, all with the clock of the test."""
    numbers = iter(range(1, 100))

    def make(period_s: float = 10, url: str = redis_url) -> LeasedScheduler:
        app = Celery(f"test-{next(numbers)}", broker=url)
        app.conf.beat_schedule = {
            name: {"task": f"tasks.{name}", "schedule": timedelta(seconds=period_s)} for name in ("poll", "rules")
        }
        # Celery reads the time from the application.
        monkeypatch.setattr(app, "now", lambda: datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
        beat = LeasedScheduler(app, clock=clock)
        monkeypatch.setattr(beat, "_name", f"host-{app.main}")
        return beat

    return make


def sent(redis: Redis) -> list[str]:
    """Return the waiting tasks, oldest first."""
    return [json.loads(message)["headers"]["task"] for message in reversed(redis.lrange(broker.QUEUE, 0, -1))]


def tick(beat: LeasedScheduler) -> None:
    """Call the beat as Celery's loop does: again immediately while tasks are due."""
    while beat.tick() == 0:
        pass


def pass_time(clock: ManualClock, seconds: float, *beats: LeasedScheduler) -> None:
    for _ in range(round(seconds)):
        clock.advance(1)
        for beat in beats:
            tick(beat)


def test_only_one_of_two_beats_sends_tasks(make_beat: MakeBeat, redis: Redis, clock: ManualClock) -> None:
    first, second = make_beat(), make_beat()
    pass_time(clock, 31, first, second)
    assert sent(redis).count("tasks.poll") == 3
    assert sent(redis).count("tasks.rules") == 3


def test_standby_continues_where_the_failed_beat_stopped(make_beat: MakeBeat, redis: Redis, clock: ManualClock) -> None:
    first, second = make_beat(), make_beat()
    pass_time(clock, 16, first, second)
    assert len(sent(redis)) == 2, "the entries were sent once, 5 s ago"
    redis.delete("waymark:beat:lease")
    pass_time(clock, 2, second)  # the first beat is killed and does not release the lease
    assert len(sent(redis)) == 2, "nothing is due yet"
    pass_time(clock, 4, second)
    assert len(sent(redis)) == 4, "10 s after the first one sent them, not 10 s after the take-over"


def test_suspended_beat_sends_nothing_when_it_resumes(
    make_beat: MakeBeat, redis: Redis, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_beat(), make_beat()
    pass_time(clock, 1, first, second)
    redis.delete("waymark:beat:lease")
    clock.advance(LEASE_S)
    pass_time(clock, 10, second)
    before = len(sent(redis))
    assert before == 2
    # The beat was suspended between its last check and the sending, and the lease has expired by its clock.
    monkeypatch.setattr(first, "_next_check", clock.monotonic() + 60)
    assert first.tick() > 0
    assert len(sent(redis)) == before


def test_beat_continues_after_redis_is_emptied(make_beat: MakeBeat, redis: Redis, clock: ManualClock) -> None:
    first, second = make_beat(), make_beat()
    pass_time(clock, 15, first, second)
    redis.flushall()
    pass_time(clock, 20, first, second)
    assert sent(redis).count("tasks.poll") == 2


def test_waiting_tasks_are_limited(make_beat: MakeBeat, redis: Redis, clock: ManualClock, caplog: Any) -> None:
    beat = make_beat(period_s=1)
    with caplog.at_level(logging.INFO):
        pass_time(clock, 60, beat)
    assert 8 <= len(sent(redis)) <= 10
    assert caplog.text.count("no worker takes the ticks that wait already") == 1
    redis.delete(broker.QUEUE)
    pass_time(clock, 3, beat)
    assert sent(redis)


def test_beat_without_redis_waits_and_logs_once(make_beat: MakeBeat, clock: ManualClock, caplog: Any) -> None:
    beat = make_beat(url="redis://127.0.0.1:1/0")
    with caplog.at_level(logging.INFO):
        pass_time(clock, 10, beat)
    assert caplog.text.count("Redis does not answer") == 1
    assert "Traceback" not in caplog.text


def test_clock_set_back_does_not_stop_tasks(make_beat: MakeBeat, redis: Redis, clock: ManualClock) -> None:
    beat = make_beat()
    pass_time(clock, 11, beat)
    clock.jump(-86_400)
    pass_time(clock, 12, beat)
    assert sent(redis).count("tasks.poll") == 2


def test_a_clock_that_was_set_forward_sends_each_entry_once(
    make_beat: MakeBeat, redis: Redis, clock: ManualClock
) -> None:
    beat = make_beat()
    pass_time(clock, 11, beat)
    clock.jump(86_400)
    pass_time(clock, 2, beat)
    assert sent(redis).count("tasks.poll") == 2


def test_heartbeat_reports_the_leader(make_beat: MakeBeat, redis: Redis, clock: ManualClock) -> None:
    beat = make_beat()
    tick(beat)
    [heartbeat] = broker.heartbeats(redis, datetime.now(UTC))
    assert (heartbeat.kind, heartbeat.name, heartbeat.facts["leads"]) == ("beat", broker.process_name(), True)
    beat.close()
    assert broker.heartbeats(redis, datetime.now(UTC)) == []
