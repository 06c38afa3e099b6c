"""While one job's storage hangs, the job manager and all other jobs continue. Afterwards the job continues, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from checkpointing.jobs import dispatcher
from checkpointing.jobs.loop import THREADS_OF_A_JOB
from checkpointing.main import IO_THREADS
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.hard_mount import HardMount, hard_mount
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

SILENCE_S = 3.0
# Longer than every bounded wait, even on a busy machine. An unbounded wait would never end.
BOUND_S = 60.0
# Checkpoints on storage that answers complete within this time, even on a busy machine.
IN_TIME = {"execution.checkpointing.timeout": "30 s"}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[HardMount]:
    with hard_mount(tmp_path / "mount") as mount:
        yield mount


@pytest_asyncio.fixture
async def manager(tmp_path: Path, mount: HardMount, request: pytest.FixtureRequest) -> AsyncIterator[RunningJobManager]:
    """Yield a job manager. A test may give it settings as the parameter of this fixture."""
    limits = {"WAYMARK_SAVEPOINT_ROOTS": str(mount.path), "WAYMARK_STORAGE_TIMEOUT": str(SILENCE_S)}
    async with running_job_manager(tmp_path, **{**limits, **getattr(request, "param", {})}) as running:
        yield running
        mount.answer()  # another test covers a shutdown while the storage hangs


def on(mount: HardMount, **more: str) -> dict[str, str]:
    """Return the settings of a job that checkpoints to `mount` many times a second and tolerates failed checkpoints."""
    return {
        "execution.checkpointing.dir": str(mount.path),
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.timeout": "100 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "100000",
        **more,
    }


async def failed_checkpoints(manager: RunningJobManager, job_id: str) -> int:
    return int((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["failed"])


async def completed_checkpoints(manager: RunningJobManager, job_id: str) -> int:
    return int((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"])


async def hung_job(manager: RunningJobManager, mount: HardMount, **more: str) -> str:
    """Start a job whose storage threads all hang, and whose checkpoints keep failing. Return its ID.

    The job runs only after the storage hangs, so that the start of a checkpoint always hangs first.
    """
    manager.launcher.becomes_running = False
    job_id = await manager.submit(on(mount, **more))
    driver = await eventually(
        lambda: next(
            (each for each in manager.launcher.drivers if each.spec.job_id == job_id and each.session_id), None
        )
    )
    manager.launcher.becomes_running = True
    mount.hang()
    await driver.runs()
    await eventually(lambda: mount.num_hanging == THREADS_OF_A_JOB)
    before = await failed_checkpoints(manager, job_id)

    async def more_failed() -> bool:
        return await failed_checkpoints(manager, job_id) > before + 2 * IO_THREADS

    await eventually(more_failed)
    return job_id


async def for_longer_than_a_lease(manager: RunningJobManager, job_id: str) -> None:
    """Wait longer than the heartbeat timeout, measured on the job manager's clock."""
    began_ms = (await manager.get(f"/jobs/{job_id}"))["now"]

    async def over() -> bool:
        now_ms = (await manager.get(f"/jobs/{job_id}"))["now"]
        return bool(now_ms - began_ms > 1000 * (manager.settings.heartbeat_timeout_s + 1))

    await eventually(over)


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def threads_of(job_id: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"the storage of job {job_id}"]


async def test_other_jobs_are_checkpointed_canceled_and_submitted(manager: RunningJobManager, mount: HardMount) -> None:
    other = await manager.submit_running()
    await hung_job(manager, mount)

    assert await manager.checkpoint(other) == 1
    assert "location" in await manager.savepoint(other)
    await manager.cancel(other)
    await manager.until(other, "CANCELED")
    third = await manager.submit_running()
    assert await manager.checkpoint(third) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("manager", [{"WAYMARK_HEARTBEAT_TIMEOUT": "3"}], ids=["short lease"], indirect=True)
async def test_hanging_storage_fails_checkpoints_but_loses_no_driver(
    manager: RunningJobManager, mount: HardMount
) -> None:
    hanging = await hung_job(manager, mount)

    heard = [driver.registrations for driver in manager.launcher.drivers]
    await for_longer_than_a_lease(manager, hanging)
    assert await manager.status(hanging) == "RUNNING"
    assert [driver.registrations for driver in manager.launcher.drivers] == heard, "a heartbeat was not answered"
    assert len(threads_of(hanging)) == THREADS_OF_A_JOB
    history = (await manager.get(f"/jobs/{hanging}/checkpoints"))["history"]
    assert all(checkpoint["status"] == "FAILED" for checkpoint in history)
    reasons = {str(checkpoint.get("failure_message")) for checkpoint in history}
    assert any("The storage has not made its directory yet." in reason for reason in reasons), reasons


async def test_job_continues_when_its_storage_answers(manager: RunningJobManager, mount: HardMount) -> None:
    hanging = await hung_job(manager, mount, **{"execution.checkpointing.timeout": "1 s"})
    before = await completed_checkpoints(manager, hanging)

    mount.answer()

    async def more_completed() -> bool:
        return await completed_checkpoints(manager, hanging) > before

    await eventually(more_completed)
    assert await manager.status(hanging) == "RUNNING"
    assert len(manager.launcher.drivers) == 1


async def test_a_savepoint_to_hanging_storage_fails_and_reports_that_it_does_not_answer(
    manager: RunningJobManager, mount: HardMount
) -> None:
    other = await manager.submit_running()
    mount.hang()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(RequestRefused) as refused:
            await manager.post(f"/jobs/{other}/savepoints", {"target-directory": f"{mount.path}/sp"})
    assert refused.value.status == 503
    assert f"target-directory: {mount.path}/sp has not answered for {SILENCE_S:g} s" in str(refused.value)
    assert "location" in await manager.savepoint(other), "another place is not held up"


async def test_job_on_hanging_storage_is_canceled_and_cleaned_up_later(
    manager: RunningJobManager, mount: HardMount, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = await manager.submit_running(on(mount, **IN_TIME))

    async def completed() -> bool:
        return await completed_checkpoints(manager, hanging) > 0

    await eventually(completed)
    mount.hang()
    await eventually(lambda: mount.num_hanging)
    async with asyncio.timeout(BOUND_S):
        await manager.cancel(hanging)
        await manager.until(hanging, "CANCELED")
        await eventually(lambda: "could not all be closed (CANCELED)" in caplog.text)
    results = manager.settings.state_directory / "ha" / "job-result-store"
    assert (results / f"{hanging}_DIRTY.json").exists()

    mount.answer()
    await eventually(lambda: (results / f"{hanging}.json").exists())
    await eventually(lambda: not threads_of(hanging) and not files_in(mount.path / hanging))


async def test_restart_on_hanging_storage_waits_and_restores(manager: RunningJobManager, mount: HardMount) -> None:
    job_id = await manager.submit_running(
        {
            "execution.checkpointing.dir": str(mount.path),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "2",
            "restart-strategy.fixed-delay.delay": "10 ms",
        }
    )
    assert await manager.checkpoint(job_id) == 1
    mount.hang()
    await (await manager.driver(1)).report_failure("crash")

    async def reports_silence() -> bool:
        exceptions = await manager.get(f"/jobs/{job_id}/exceptions")
        return f"has not answered for {SILENCE_S:g} s" in str(exceptions)

    await eventually(reports_silence)
    assert await manager.status(job_id) in ("CREATED", "FAILING", "RESTARTING")

    mount.answer()
    await manager.until(job_id, "RUNNING")
    restore = (await manager.driver(manager.launcher.drivers[-1].spec.attempt)).spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 1


async def test_the_job_manager_ends_in_bounded_time(
    tmp_path: Path, mount: HardMount, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_job_manager(
        tmp_path, WAYMARK_SAVEPOINT_ROOTS=str(mount.path), WAYMARK_STORAGE_TIMEOUT=str(SILENCE_S)
    ) as manager:
        await manager.submit_running()
        hung = await hung_job(manager, mount)
        async with asyncio.timeout(BOUND_S):
            await manager.shut_down()
        assert all(driver.process.exited.done() for driver in manager.launcher.drivers)
        silence = f"the storage of job {hung} has not answered for {SILENCE_S:g} s"
        assert f"could not all be closed (SUSPENDED): {silence}" in caplog.text
        mount.answer()


async def test_the_job_manager_ends_even_if_its_directory_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that records its next attempt cannot be interrupted, so the job manager does not wait for it."""
    monkeypatch.setattr(dispatcher, "END_GRACE_S", 0.5)
    with hard_mount(tmp_path / "state" / "jobs") as mount:
        async with running_job_manager(
            tmp_path, WAYMARK_STORAGE_TIMEOUT=str(SILENCE_S), WAYMARK_DRIVERS_ON_SHUTDOWN="leave"
        ) as manager:
            waiting = await manager.submit_running(
                {
                    "restart-strategy.type": "fixed-delay",
                    "restart-strategy.fixed-delay.delay": "5 s",
                    "execution.state-recovery.from-local": "false",
                }
            )
            other = await manager.submit_running()
            await manager.launcher.drivers[0].report_failure("crash")
            await manager.until(waiting, "RESTARTING")
            mount.hang()
            await eventually(lambda: mount.num_hanging)
            assert await manager.status(waiting) == "CREATED"
            assert await manager.checkpoint(other) == 1
            async with asyncio.timeout(BOUND_S):
                await manager.shut_down()
            assert f"job {waiting} did not end within 1 s and is abandoned" in caplog.text
            mount.answer()


# Four of its requests wait for the whole limit.
@pytest.mark.parametrize("manager", [{"WAYMARK_STORAGE_TIMEOUT": "2"}], ids=["short limit"], indirect=True)
async def test_a_submission_that_names_it_is_refused_and_others_are_not(
    manager: RunningJobManager, mount: HardMount
) -> None:
    mount.hang()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(RequestRefused, match=r"execution\.checkpointing\.dir: .* has not answered"):
            await manager.submit(on(mount))
        with pytest.raises(RequestRefused, match=r"savepointPath: .* has not answered"):
            await manager.submit(savepointPath=f"{mount.path}/savepoint-1", claimMode="CLAIM")
        for _ in range(2 * THREADS_OF_A_JOB):
            with pytest.raises(RequestRefused, match=r"savepointPath: .* has not answered") as refused:
                await manager.post("/savepoints/validate", {"savepointPath": f"{mount.path}/savepoint-1"})
            assert refused.value.status == 503
        elsewhere = {"savepointPath": f"{manager.settings.savepoint_directory}/savepoint-1"}
        assert "there is no _metadata" in str((await manager.post("/savepoints/validate", elsewhere))["reason"])
    await manager.submit_running()


@pytest.mark.zookeeper
async def test_the_next_leader_serves_even_if_the_storage_of_an_ended_job_hangs(
    cluster: Cluster, mount: HardMount
) -> None:
    limits = {"WAYMARK_SAVEPOINT_ROOTS": str(mount.path), "WAYMARK_STORAGE_TIMEOUT": str(SILENCE_S)}
    async with cluster.job_manager(**limits) as first:
        await leads(first)
        ended = await first.submit_running(on(mount, **IN_TIME))

        async def completed() -> bool:
            return await completed_checkpoints(first, ended) > 0

        await eventually(completed)
        mount.hang()
        await eventually(lambda: mount.num_hanging)
        await first.cancel(ended)
        results = first.settings.state_directory / "ha" / "job-result-store"
        await eventually(lambda: (results / f"{ended}_DIRTY.json").exists())

    async with cluster.job_manager(**limits) as second, asyncio.timeout(BOUND_S):
        await leads(second)
        await second.submit_running()
        mount.answer()
        await eventually(lambda: (results / f"{ended}.json").exists())
        await eventually(lambda: not threads_of(ended) and not files_in(mount.path / ended))
