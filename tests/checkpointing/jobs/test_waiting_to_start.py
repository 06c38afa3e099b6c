"""A job whose driver waits for memory or for its turn on this machine, over real HTTP, with fake drivers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from checkpointing import main as jobmanager
from checkpointing.clock import SystemClock
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

MIB = 2**20
ASKED = (768 + 384 + 2 * 128) * MIB
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


async def waits_for(manager: RunningJobManager, job_id: str, what: str) -> dict[str, Any]:
    async def waits() -> dict[str, Any] | None:
        wait = (await manager.get(f"/jobs/{job_id}"))["launch-wait"]
        return wait if wait is not None and wait["for"] == what else None

    return dict(await eventually(waits))


async def test_a_job_without_memory_waits_in_created_and_shows_why(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_MEMORY="2gb") as manager:
        first = await manager.submit_running()
        second = await manager.submit()
        third = await manager.submit({"waymark.driver.memory": "100mb", "waymark.priority": "-1"})

        behind = await waits_for(manager, third, "turn")
        wait = await waits_for(manager, second, "memory")

        since = wait.pop("since")
        assert wait == {"for": "memory", "asked": ASKED, "free": 2048 * MIB - ASKED, "limit": 2048 * MIB,
                        "position": 1, "length": 2}  # fmt: skip
        assert (behind["position"], behind["length"], behind["asked"]) == (2, 2, 100 * MIB)
        job = await manager.get(f"/jobs/{second}")
        assert job["state"] == "CREATED"
        assert job["start-time"] <= since <= job["now"]
        assert job["attempts"] == []
        assert (await manager.get(f"/jobs/{first}"))["launch-wait"] is None


async def test_a_job_that_ends_frees_memory_for_the_next(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_LIMIT="1") as manager:
        first = await manager.submit_running()
        second = await manager.submit()
        assert (await waits_for(manager, second, "drivers"))["limit"] == 1

        await manager.cancel(first)

        await manager.until(second, "RUNNING")
        job = await manager.get(f"/jobs/{second}")
        assert (job["launch-wait"], job["restarts"]) == (None, 0)


async def test_a_waiting_job_is_canceled_at_once(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_LIMIT="1") as manager:
        await manager.submit_running()
        waiting, next_one = await manager.submit(), await manager.submit()
        await waits_for(manager, waiting, "drivers")
        await waits_for(manager, next_one, "turn")

        await manager.cancel(waiting)

        await manager.until(waiting, "CANCELED")
        assert (await waits_for(manager, next_one, "drivers"))["position"] == 1
        assert len(manager.launcher.drivers) == 1


async def test_a_stop_with_savepoint_of_a_waiting_job_is_refused_at_once(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_LIMIT="1") as manager:
        await manager.submit_running()
        waiting = await manager.submit()
        await waits_for(manager, waiting, "drivers")

        answer = await manager.savepoint(waiting, "stop")

        assert "CREATED" in str(answer["failure-cause"])


async def test_a_restart_passes_jobs_that_wait_for_room(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_LIMIT="1") as manager:
        job_id = await manager.submit_running(RESTART)
        waiting = await manager.submit({"waymark.priority": "9"})
        await waits_for(manager, waiting, "drivers")

        await (await manager.driver(1)).report_failure("the disk is full")

        await manager.driver(2)
        await manager.until(job_id, "RUNNING")
        await waits_for(manager, waiting, "drivers")


async def test_no_more_than_the_limit_start_at_a_time(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_STARTS="1") as manager:
        manager.launcher.becomes_running = False
        first, second = await manager.submit(), await manager.submit()
        await waits_for(manager, second, "starts")
        (driver,) = manager.launcher.drivers
        await eventually(lambda: driver.registrations)

        await driver.runs()

        await manager.until(first, "RUNNING")
        await eventually(lambda: len(manager.launcher.drivers) == 2)


async def test_a_job_that_requests_more_than_the_machine_has_is_refused(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_MEMORY="2gb") as manager:
        with pytest.raises(RequestRefused) as refused:
            await manager.submit({"spark.driver.memory": "3g"})

        assert refused.value.status == 400
        assert "spark.driver.memory: '3g' is not allowed" in str(refused.value)
        assert "3.6 GiB" in str(refused.value)
        assert (await manager.get("/jobs"))["jobs"] == []


async def test_a_priority_that_is_not_a_number_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=r"waymark\.priority: 'high' is not allowed"):
        await manager.submit({"waymark.priority": "high"})


class ShiftedClock(SystemClock):
    """The real clock plus `passed_s`, which the test adds."""

    passed_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    clock = ShiftedClock()
    monkeypatch.setattr(jobmanager, "SystemClock", lambda: clock)
    return clock


async def test_the_time_in_the_queue_does_not_make_failures_rarer(tmp_path: Path, clock: ShiftedClock) -> None:
    """Two failures right after a start count as two in a minute, even if the second start waited long."""
    rate = "restart-strategy.failure-rate."
    at_most_one_a_minute = {"restart-strategy.type": "failure-rate", rate + "max-failures-per-interval": "1",
                            rate + "failure-rate-interval": "1 min", rate + "delay": "10 ms"}  # fmt: skip
    patient = {"WAYMARK_HEARTBEAT_TIMEOUT": "9999", "WAYMARK_REGISTRATION_TIMEOUT": "9999"}
    async with running_job_manager(tmp_path, WAYMARK_DRIVER_STARTS="1", **patient) as manager:
        job_id = await manager.submit_running(at_most_one_a_minute)
        manager.launcher.becomes_running = False
        await manager.submit()
        await eventually(lambda: len(manager.launcher.drivers) == 2)
        first, blocking = manager.launcher.drivers
        await eventually(lambda: blocking.registrations)
        await first.report_failure("one")
        await waits_for(manager, job_id, "starts")

        clock.passed_s += 600.0
        await asyncio.sleep(0)
        await blocking.runs()
        await (await manager.driver(2)).report_failure("two")

        await manager.until(job_id, "FAILED")
