"""Ended jobs after the end of their job manager: the next one shows them unchanged. Over a real ZooKeeper.

A leader retries what failed at the end of jobs, or at the recovery of other jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from checkpointing.ha.services import ZooKeeperServices
from checkpointing.ha.zookeeper import Create
from checkpointing.jobs import retries
from checkpointing.jobs.archive import ARCHIVE_NAME
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper

SHOWN = ["", "/status", "/plan", "/config", "/exceptions", "/execution-result", "/checkpoints", "/checkpoints/config",
         "/checkpoints/details/1"]  # fmt: skip
OF_NOW = ("now",)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.2)


@pytest.fixture
def call() -> Callable[..., Any]:
    return asyncio.to_thread


async def shown(manager: RunningJobManager, job_id: str) -> dict[str, Any]:
    answers = {path: await manager.get(f"/jobs/{job_id}{path}") for path in SHOWN}
    [answers["overview"]] = [job for job in (await manager.get("/jobs/overview"))["jobs"] if job["jid"] == job_id]
    return {path: {key: value for key, value in dict(a).items() if key not in OF_NOW} for path, a in answers.items()}


async def test_an_ended_job_is_shown_by_the_next_job_manager_as_by_the_one_that_ran_it(cluster: Cluster) -> None:
    async with cluster.job_manager() as first:
        await leads(first)
        canceled, failed = await first.submit_running(), await first.submit_running()
        assert await first.checkpoint(canceled) == 1
        assert await first.checkpoint(failed) == 1
        await cluster.launcher.drivers[1].report_failure("the disk is full", recoverable=False)
        await first.until(failed, "FAILED")
        await first.cancel(canceled)
        await first.until(canceled, "CANCELED")
        ids = [canceled, failed]
        await eventually(lambda: set_of_jobs(first) and all_clean(first, ids))
        before = [await shown(first, job_id) for job_id in ids]
        overview = await first.get("/overview")

    async with cluster.job_manager() as second:
        await leads(second)
        assert [await shown(second, job_id) for job_id in ids] == before
        assert await second.get("/overview") == overview
        assert (await second.get("/jobs"))["jobs"] == [
            {"id": canceled, "status": "CANCELED"},
            {"id": failed, "status": "FAILED"},
        ], "the newest first"
        assert (await second.get(f"/v1/jobs/{failed}"))["state"] == "FAILED"
        assert "the disk is full" in str(await second.get(f"/jobs/{failed}/exceptions"))
        await second.cancel(canceled)  # a cancellation of an ended job changes nothing
        with pytest.raises(RequestRefused) as refusal:
            await second.cancel(failed)
        assert refusal.value.status == 409
        assert "FAILED" in str(refusal.value)


def set_of_jobs(manager: RunningJobManager) -> bool:
    return (manager.settings.state_directory / "ha" / "job-result-store").is_dir()


def all_clean(manager: RunningJobManager, job_ids: list[str]) -> bool:
    results = manager.settings.state_directory / "ha" / "job-result-store"
    return all((results / f"{job_id}.json").exists() for job_id in job_ids)


async def test_ended_jobs_are_limited_and_a_damaged_one_is_left_out(cluster: Cluster) -> None:
    async with cluster.job_manager() as first:
        await leads(first)
        ids = []
        for _ in range(4):
            ids.append(await first.submit_running())
            await first.cancel(ids[-1])
            await first.until(ids[-1], "CANCELED")
        await eventually(lambda: all_clean(first, ids))
    (first.settings.state_directory / "jobs" / ids[3] / ARCHIVE_NAME).write_text("{}")

    async with cluster.job_manager(WAYMARK_COMPLETED_JOBS="2") as second:
        await leads(second)
        jobs = [job["id"] for job in (await second.get("/jobs"))["jobs"]]
        assert jobs == [ids[2], ids[1], ids[0]]
        newest = await second.submit_running()
        await second.cancel(newest)

        async def forgotten() -> bool:
            return [job["id"] for job in (await second.get("/jobs"))["jobs"]] == [newest, ids[2]]

        await eventually(forgotten)
        directory = second.settings.state_directory / "jobs"
        await eventually(lambda: not (directory / ids[0]).exists() and not (directory / ids[1]).exists())
        with pytest.raises(RequestRefused) as refusal:
            await second.get(f"/jobs/{ids[3]}")
        assert refusal.value.status == 404


async def test_a_clean_up_that_fails_is_tried_again_by_the_same_leader(
    cluster: Cluster, call: Callable[..., Any]
) -> None:
    ha = await call(cluster.stores)
    assert isinstance(ha, ZooKeeperServices)
    connection = ha._connection
    try:
        async with cluster.job_manager() as manager:
            await leads(manager)
            job_id = await manager.submit_running()
            await manager.checkpoint(job_id)
            in_the_way = f"jobs/{job_id}/checkpoint_id_counter/in-the-way"
            await call(connection.commit, [Create(in_the_way)])
            await manager.cancel(job_id)
            await manager.until(job_id, "CANCELED")
            await eventually(lambda: ha.job_results.has_result(job_id))
            assert not ha.job_results.has_clean_result(job_id)

            await call(connection.delete, in_the_way)
            await eventually(lambda: ha.job_results.has_clean_result(job_id))
            assert await call(connection.children, f"jobs/{job_id}") == []
            assert await call(ha.job_graphs.job_ids) == []
            assert await manager.status(job_id) == "CANCELED"
    finally:
        await call(ha.close)


async def test_a_job_that_cannot_be_recovered_now_keeps_its_driver_and_is_recovered_later(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id, other = await first.submit_running(), await first.submit_running()
        plans = first.settings.state_directory / "ha" / "execution-plans"
        [graph] = plans.glob(f"{job_id}-*.json")
        away = graph.rename(plans / "away")

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(other, "RUNNING")
        for ask in (second.get(f"/jobs/{job_id}"), second.submit(jobId=job_id)):
            with pytest.raises(RequestRefused) as refusal:
                await ask
            assert refusal.value.status == 503
            assert "could not be recovered yet" in str(refusal.value)
        driver = cluster.launcher.drivers[0]
        await eventually(lambda: driver.waits > 1)
        assert driver.refusals == [], "it shall come again"

        away.rename(graph)

        async def recovered() -> bool:
            try:
                return await second.status(job_id) == "RUNNING"
            except RequestRefused as refusal:
                assert refusal.status == 503  # noqa: PT017
                return False

        await eventually(recovered)
        assert len(cluster.launcher.drivers) == 2, "its driver was adopted"


async def test_a_job_whose_end_was_not_recorded_keeps_its_directory_when_it_is_shown_no_more(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_COMPLETED_JOBS="1") as first:
        await leads(first)
        job_ids = [await first.submit_running() for _ in range(2)]
        results = first.settings.state_directory / "ha" / "job-result-store"
        results.write_text("a file where the results should go")
        for job_id in job_ids:
            await first.cancel(job_id)

        async def one_is_shown() -> bool:
            return [job["status"] for job in (await first.get("/jobs"))["jobs"]] == ["CANCELED"]

        await eventually(one_is_shown)
        results.unlink()

    async with cluster.job_manager() as second:
        await leads(second)
        for job_id in job_ids:
            await second.until(job_id, "RUNNING")
