"""The job manager accepts messages only from the current attempt's driver, which authenticates with its secret."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from websockets.asyncio.client import ClientConnection, connect

from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import (
    DriverState,
    JobManagerMessage,
    Refused,
    Register,
    Registered,
    StatusUpdate,
    decode,
    encode,
)
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import VERTICES
from tests.checkpointing.jobs.running_job_manager import LIMIT_S, RunningJobManager, eventually

FAST_RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


@contextlib.asynccontextmanager
async def dialled(manager: RunningJobManager) -> AsyncIterator[ClientConnection]:
    async with connect(manager.address.replace("http", "ws") + "/drivers", proxy=None) as connection:
        yield connection


async def answer(connection: ClientConnection) -> JobManagerMessage:
    async with asyncio.timeout(LIMIT_S):
        return decode(await connection.recv())  # type: ignore[return-value]


async def registered(connection: ClientConnection, spec: DriverSpec) -> str:
    """Register as the driver of `spec`, and report that the job runs.

    Returns:
        The session id.
    """
    await connection.send(encode(registration(spec)))
    message = await answer(connection)
    assert isinstance(message, Registered)
    return message.session_id


def registration(spec: DriverSpec, secret: str | None = None) -> Register:
    secret = spec.secret if secret is None else secret
    return Register(spec.job_id, spec.attempt, 1_000_000, DriverState.RUNNING, VERTICES, {}, secret=secret)


def finished(session_id: str, spec: DriverSpec) -> str:
    return encode(StatusUpdate(session_id, spec.job_id, spec.attempt, DriverState.FINISHED, ()))


async def launched(manager: RunningJobManager, attempt: int) -> DriverSpec:
    def spec() -> DriverSpec | None:
        return next((spec for spec in manager.launcher.specs if spec.attempt == attempt), None)

    return await eventually(spec)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Restarted:
    """A job that runs in its second attempt, while the connection of the first attempt is still open."""

    job_id: str
    first: ClientConnection
    second: ClientConnection
    session_id: str
    specs: tuple[DriverSpec, DriverSpec]


@contextlib.asynccontextmanager
async def restarted(manager: RunningJobManager) -> AsyncIterator[Restarted]:
    manager.launcher.registers = False
    job_id = await manager.submit(FAST_RESTART)
    async with dialled(manager) as first, dialled(manager) as second:
        old = await launched(manager, 1)
        session_id = await registered(first, old)
        await manager.until(job_id, "RUNNING")
        await first.send(encode(StatusUpdate(session_id, job_id, 1, DriverState.FAILED, ())))
        manager.launcher.drivers[0].kill(1)
        new = await launched(manager, 2)
        await registered(second, new)
        await manager.until(job_id, "RUNNING")
        yield Restarted(job_id, first, second, session_id, (old, new))
    manager.launcher.drivers[1].kill(1)


async def test_a_message_of_an_old_attempt_is_refused(manager: RunningJobManager) -> None:
    async with restarted(manager) as job:
        await job.second.send(finished(job.session_id, job.specs[0]))

        assert isinstance(await answer(job.second), Refused)
        assert await manager.status(job.job_id) == "RUNNING"


async def test_a_message_on_an_old_attempts_connection_is_refused(manager: RunningJobManager) -> None:
    async with restarted(manager) as job:
        await job.first.send(finished(job.session_id, job.specs[1]))

        assert isinstance(await answer(job.first), Refused)
        assert await manager.status(job.job_id) == "RUNNING"


@pytest.mark.parametrize("secret", ["", "guessed", "\ud800"])
async def test_a_driver_without_the_secret_is_refused_and_the_real_driver_continues(
    manager: RunningJobManager, secret: str
) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    async with dialled(manager) as forger:
        await forger.send(encode(registration(driver.spec, secret)))
        assert isinstance(await answer(forger), Refused)
        with contextlib.suppress(Exception):  # the job manager has closed the connection
            await forger.send(finished(driver.session_id, driver.spec))

        assert await manager.checkpoint(job_id) == 1
    assert await manager.status(job_id) == "RUNNING"
    assert (driver.registrations, driver.refusals) == (1, [])


async def test_a_connected_driver_cannot_be_replaced_by_one_without_the_secret(manager: RunningJobManager) -> None:
    """A second `register` message on a registered connection is checked like the first one."""
    manager.launcher.registers = False
    job_id = await manager.submit()
    spec = await launched(manager, 1)
    async with dialled(manager) as driver:
        await registered(driver, spec)
        await driver.send(encode(registration(spec, "guessed")))

        assert isinstance(await answer(driver), Refused)
        assert await manager.status(job_id) == "RUNNING"
    manager.launcher.drivers[0].kill(1)


async def test_each_attempt_has_another_secret_that_no_record_contains(manager: RunningJobManager) -> None:
    async with restarted(manager) as job:
        secrets = [spec.secret for spec in job.specs]
        record = manager.directory / "state" / "jobs" / job.job_id / "attempt.json"
        assert secrets[1] not in record.read_text()
    assert len({*secrets, ""}) == 3


@pytest.mark.zookeeper
async def test_the_next_job_manager_expects_the_same_secret(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running()
    driver = cluster.launcher.drivers[0]

    async with cluster.job_manager() as second, dialled(second) as forger:
        await leads(second)
        await second.until(job_id, "RECONCILING")
        await forger.send(encode(registration(driver.spec, "guessed")))
        assert isinstance(await answer(forger), Refused)
        assert await second.status(job_id) == "RECONCILING"

        cluster.drivers_find(second)
        await second.until(job_id, "RUNNING")
    assert driver.refusals == []
