"""An uploaded program is removed when no running job and no listed ended job was started from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import PROGRAM, RunningJobManager, eventually, running_job_manager

SHORT = {"WAYMARK_PROGRAM_RETENTION": "0.2"}


async def listed(manager: RunningJobManager) -> set[str]:
    return {each["id"] for each in (await manager.get("/jars"))["files"]}


async def recovered(manager: RunningJobManager) -> bool:
    return bool((await manager.get("/jobs"))["jobs"])


async def upload_unused(manager: RunningJobManager) -> None:
    """Upload a program that no job needs, and wait until it is removed."""
    unused = await manager.upload(f"{PROGRAM}# {manager.address}\n", "unused.py")

    async def is_deleted() -> bool:
        return unused not in await listed(manager)

    await eventually(is_deleted)


async def test_programs_of_running_and_ended_jobs_are_kept_and_others_removed(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, **SHORT) as manager:
        job_id = await manager.submit_running()
        (needed,) = await listed(manager)
        await upload_unused(manager)
        assert await listed(manager) == {needed}

        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
        await upload_unused(manager)
        assert await listed(manager) == {needed}


async def test_a_program_is_removed_with_the_last_listed_job(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_COMPLETED_JOBS="1", **SHORT) as manager:
        old = await manager.submit_running()
        (needed,) = await listed(manager)
        await manager.cancel(old)
        await manager.until(old, "CANCELED")
        other = await manager.upload(f"{PROGRAM}#\n")
        newer = (await manager.post(f"/jars/{other}/run", {"entryClass": "wordcount.py:wordcount"}))["jobid"]
        await manager.until(newer, "RUNNING")
        await manager.cancel(newer)

        async def is_deleted() -> bool:
            return needed not in await listed(manager)

        await eventually(is_deleted)
        assert await listed(manager) == {other}


@pytest.mark.zookeeper
async def test_the_next_job_manager_keeps_the_programs_of_jobs_that_ended_before(cluster: Cluster) -> None:
    async with cluster.job_manager() as first:
        await leads(first)
        job_id = await first.submit_running()
        (needed,) = await listed(first)
        await first.cancel(job_id)
        await first.until(job_id, "CANCELED")

    async with cluster.job_manager(**SHORT) as second:
        await leads(second)
        await upload_unused(second)
        assert await listed(second) == {needed}


@pytest.mark.zookeeper
async def test_no_program_is_removed_while_a_stored_job_is_not_recovered(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running()
        (needed,) = await listed(first)
    (plan,) = (cluster.directory / "state" / "ha").rglob("execution-plans/*.json")
    away = plan.rename(plan.with_suffix(".away"))

    async with cluster.job_manager(**SHORT) as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: caplog.text.count(f"job {job_id} cannot be recovered") > 2)
        assert await listed(second) == {needed}

        away.rename(plan)
        await eventually(lambda: recovered(second))
        await second.until(job_id, "RUNNING")
        await upload_unused(second)
        assert await listed(second) == {needed}
