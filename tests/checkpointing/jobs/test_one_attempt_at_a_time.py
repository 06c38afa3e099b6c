"""No driver starts while another driver claims the job in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from checkpointing.ha.driver_services import driver_services
from checkpointing.ha.services import ZooKeeperServices
from checkpointing.ha.zookeeper import Create
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper

RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


@contextlib.asynccontextmanager
async def claimed(cluster: Cluster, job_id: str, attempt: int) -> AsyncIterator[None]:
    """Claim the job as a living driver that no job manager can reach."""
    stores = await asyncio.to_thread(cluster.stores)
    assert stores.driver_specification is not None
    driver = await asyncio.to_thread(driver_services, stores.driver_specification)
    try:
        await asyncio.to_thread(driver.attempts.hold, job_id, attempt)
        yield
    finally:
        await asyncio.to_thread(driver.close)
        await asyncio.to_thread(stores.close)


async def waits_for_the_other(cluster: Cluster, num_drivers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the job manager logs that the next driver waits. Fail at once if it starts a driver instead."""
    await eventually(lambda: len(cluster.launcher.drivers) > num_drivers or "the next one waits" in caplog.text)
    assert len(cluster.launcher.drivers) == num_drivers


async def test_the_first_attempt_waits_until_no_other_driver_claims_the_job(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The record of the earlier attempt was lost, so only the claim shows that a driver of the job lives."""
    job_id = uuid.uuid4().hex
    async with cluster.job_manager() as manager:
        await leads(manager)
        async with claimed(cluster, job_id, 1):
            await manager.submit(jobId=job_id)
            await waits_for_the_other(cluster, 0, caplog)
            assert await manager.status(job_id) == "CREATED"

        await manager.until(job_id, "RUNNING")
        assert len(cluster.launcher.drivers) == 1


async def test_the_next_attempt_waits_until_the_previous_driver_releases_its_claim(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's local process has ended, but its claim is still held, as by a JVM in a cluster."""
    async with cluster.job_manager() as manager:
        await leads(manager)
        job_id = await manager.submit_running(RESTART)
        async with claimed(cluster, job_id, 1):
            await _lost(manager)
            await waits_for_the_other(cluster, 1, caplog)

        await manager.until(job_id, "RUNNING")
        assert len(cluster.launcher.drivers) == 2


async def test_no_driver_is_started_while_the_claim_of_the_job_is_unknown(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = uuid.uuid4().hex
    stores = await asyncio.to_thread(cluster.stores)
    assert isinstance(stores, ZooKeeperServices)
    connection, claim = stores._connection, f"jobs/{job_id}/attempt"
    try:
        await asyncio.to_thread(connection.ensure, f"jobs/{job_id}")
        await asyncio.to_thread(connection.commit, [Create(claim, b"no driver wrote this", ephemeral=True)])
        async with cluster.job_manager() as manager:
            await leads(manager)
            await manager.submit(jobId=job_id)
            await eventually(lambda: cluster.launcher.drivers or "cannot find out now" in caplog.text)
            assert (cluster.launcher.drivers, await manager.status(job_id)) == ([], "CREATED")

            await asyncio.to_thread(connection.delete, claim)
            await manager.until(job_id, "RUNNING")
            assert len(cluster.launcher.drivers) == 1
    finally:
        await asyncio.to_thread(stores.close)


async def _lost(manager: RunningJobManager) -> None:
    (await manager.driver(1)).kill(-9)
