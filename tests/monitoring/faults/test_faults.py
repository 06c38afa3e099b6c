"""Servers and processes of a running installation die: no row is wrong or lost, and no process restarts in a loop.

The faults last seconds; with WAYMARK_FAULT_S=60 they last a minute.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from redis import Redis

from monitoring import broker
from tests.monitoring.faults.conftest import Watch
from tests.monitoring.faults.machine import Process, full
from tests.waiting import eventually

FAULT_S = float(os.environ.get("WAYMARK_FAULT_S", "1"))
Said = dict[str, Callable[[str], str]]

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.timeout(900), pytest.mark.usefixtures("quiet")]


@pytest.fixture(scope="module")
def redis(machine: Any) -> Redis:
    return broker.connect(machine.redis_url)


def last_for(seconds: float) -> None:
    """Wait for the length of the fault."""
    over = time.monotonic() + seconds
    eventually("the fault is over", lambda: time.monotonic() > over, seconds + 30)


def leader(watch: Watch, redis: Redis) -> Process | None:
    """Return the process of the beat that leads, if there is one."""
    for number in (1, 2):
        beat = watch.machine.beat(number)
        text = beat.alive and redis.get(f"waymark:sign:beat:{os.uname().nodename}:{beat.pid}")
        if text and '"leads": true' in text:
            return beat
    return None


def runs(watch: Watch) -> int:
    return int(watch.machine.value("SELECT coalesce(sum(runs), 0) FROM monitoring_tick WHERE task = 'poll_clusters'"))


def ticks_go_on(watch: Watch) -> None:
    before = runs(watch)
    eventually("three more ticks", lambda: runs(watch) >= before + 3)


def tracebacks(text: str) -> int:
    return text.count("Traceback (most recent call last)")


def test_the_second_beat_takes_over_from_one_that_was_killed(watch: Watch, redis: Redis) -> None:
    first = eventually("a beat ticks", lambda: leader(watch, redis))
    first.kill()
    killed = time.monotonic()
    second = eventually("the other one ticks", lambda: leader(watch, redis))
    took = time.monotonic() - killed
    assert second is not first
    assert took < 30, "a lease of 5 s and a look a second, on a busy machine"
    ticks_go_on(watch)
    first.start()
    before, begun = runs(watch), time.monotonic()
    eventually("both are there", lambda: len(list(redis.scan_iter("waymark:sign:beat:*"))) >= 2)
    eventually("some ticks", lambda: runs(watch) >= before + 3)
    assert runs(watch) - before <= time.monotonic() - begun + 3, "one of them ticks, once a second"
    watch.grows_and_is_seen()


def test_an_emptied_redis_loses_no_work(watch: Watch, redis: Redis, quiet: Said) -> None:
    redis.flushall()
    ticks_go_on(watch)
    watch.grows_and_is_seen()
    assert tracebacks(quiet["since"]("worker1")) == 0


def test_a_killed_redis_loses_no_work_and_causes_no_burst(watch: Watch, redis: Redis, quiet: Said) -> None:
    watch.machine.redis.kill()
    watch.grow()
    last_for(FAULT_S)
    watch.machine.redis.start()
    ticks_go_on(watch)
    watch.grows_and_is_seen()
    assert broker.waiting(redis) < 40
    for name in ("worker1", "beat1", "beat2"):
        text = quiet["since"](name)
        assert tracebacks(text) == 0, text
        assert len(text.splitlines()) < 15 + FAULT_S


def test_a_worker_killed_in_the_middle_of_a_write_leaves_no_half(watch: Watch) -> None:
    machine, worker = watch.machine, watch.machine.worker()
    with psycopg.connect(machine.dsn) as blocker:
        blocker.execute("LOCK TABLE monitoring_operatorcheckpoint IN SHARE MODE")
        watch.grow()
        eventually("its transaction has begun and waits", lambda: machine.value(_WAITS) > 0)
        worker.kill()
    eventually("the server ended its transaction", lambda: machine.value(_OPEN) == 0)
    newest = machine.value("SELECT max(checkpoint_id) FROM monitoring_checkpoint")
    assert newest == watch.job.checkpoints[-1].id - 3, "nothing of what it was writing is there"
    worker.start()
    machine.rows("UPDATE monitoring_cluster SET poll_claimed_until = now()")  # end the lease, which lasts 20 s longer
    watch.caught_up()


_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE '%operatorcheckpoint%'"
_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datid > 0"


@pytest.mark.parametrize("killed", [False, True])
def test_the_database_restarts_under_workers_and_pages(watch: Watch, quiet: Said, killed: bool) -> None:
    machine = watch.machine
    eventually("the web server sees", lambda: machine.get("/health")[0] == 200)
    machine.postgres.kill() if killed else machine.postgres.stop()
    watch.grow()
    status, body = machine.get("/health")
    assert (status, json.loads(body)["problems"][0]["part"]) == (503, "database")
    assert machine.get("/healthz")[0] == 200
    last_for(FAULT_S)
    machine.postgres.start()
    ticks_go_on(watch)
    watch.grows_and_is_seen()
    eventually("the web server sees again", lambda: machine.get("/health")[0] == 200)
    assert b"waymark_database_up 1.0" in machine.get("/metrics")[1]
    text = quiet["since"]("worker1")
    assert tracebacks(text) == 0, text
    assert 1 <= text.count("The database cannot be used") <= 2 + FAULT_S / 60
    assert text.count("The database can be used again.") >= 1
    assert len(text.splitlines()) < 12 + FAULT_S


def test_a_full_disk_of_the_database_loses_nothing(watch: Watch, quiet: Said) -> None:
    machine = watch.machine
    if not os.path.ismount(machine.disk):
        pytest.skip("no file system can be mounted here")
    with full(machine.disk):
        watch.grow(400)
        eventually("the disk is met", lambda: "No space left" in quiet["since"]("worker1"))
    if not machine.postgres.alive:
        machine.postgres.start()
    watch.caught_up()
    ticks_go_on(watch)
    text = quiet["since"]("worker1")
    assert tracebacks(text) == 0, text
    assert len(text.splitlines()) < 20


def test_two_workers_at_once_write_everything_once(watch: Watch) -> None:
    second = watch.machine.worker(2)
    second.start()
    eventually("both take ticks", lambda: watch.machine.value(_WORKERS) >= 2)
    watch.grow(30)
    watch.caught_up()
    second.kill(signal.SIGTERM)
    watch.machine.processes.pop("worker2")


_WORKERS = "SELECT count(DISTINCT worker) FROM monitoring_tick"
