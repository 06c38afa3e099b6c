"""The death of a leader does not harm jobs whose drivers are pods. Over a real ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.checkpointing.jobs.cluster import leads
from tests.checkpointing.jobs.played_driver import CONFIGURATION, PodCluster, pod_cluster
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper


@pytest_asyncio.fixture
async def pods(tmp_path: Path) -> AsyncIterator[PodCluster]:
    async with pod_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def ha(zookeeper_hosts: str) -> dict[str, str]:
    root = f"/test-{uuid.uuid4().hex}"
    return {"ZOOKEEPER_HOSTS": zookeeper_hosts, "WAYMARK_ZOOKEEPER_ROOT": root, "WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}


async def left_running(pods: PodCluster, ha: dict[str, str]) -> str:
    """Run a job whose leader ends while its pod lives, and return the job's ID."""
    async with pods.job_manager(**ha) as first:
        await leads(first)
        job_id = await first.submit_running(CONFIGURATION)
        assert await first.checkpoint(job_id) == 1
    return job_id


def drivers_find(pods: PodCluster, manager: RunningJobManager) -> None:
    for driver in pods.drivers.drivers:
        driver.address = manager.address


async def attempt_runs(manager: RunningJobManager, job_id: str, number: int) -> None:
    async def runs() -> bool:
        job: Any = await manager.get(f"/jobs/{job_id}")
        return bool(job["state"] == "RUNNING" and job["attempts"][0]["attempt"] == number)

    await eventually(runs)


async def test_the_next_leader_adopts_a_pod_and_ends_it(pods: PodCluster, ha: dict[str, str]) -> None:
    job_id = await left_running(pods, ha)
    async with pods.job_manager(**ha) as second:
        drivers_find(pods, second)
        await leads(second)
        await attempt_runs(second, job_id, 1)
        assert await second.checkpoint(job_id) == 2
        await second.cancel(job_id)
        await second.until(job_id, "CANCELED")
        await eventually(lambda: not pods.kubernetes.pods)
    assert pods.created == ["1"]


async def test_a_pod_is_adopted_while_the_api_is_unreachable(pods: PodCluster, ha: dict[str, str]) -> None:
    job_id = await left_running(pods, ha)
    pods.kubernetes.is_away = True
    async with pods.job_manager(**ha, WAYMARK_RECONCILE_WINDOW="0.5") as second:
        await leads(second)
        await second.until(job_id, "RECONCILING")
        calls = len(pods.kubernetes.calls)
        await eventually(lambda: len(pods.kubernetes.calls) > calls + 30)
        assert await second.status(job_id) == "RECONCILING", "nobody can say that the driver is dead"
        drivers_find(pods, second)
        await attempt_runs(second, job_id, 1)
        pods.kubernetes.is_away = False
    assert pods.created == ["1"]


async def test_a_leader_that_died_before_it_created_the_pod_causes_no_wait(
    pods: PodCluster, ha: dict[str, str]
) -> None:
    """A pod that was deleted meanwhile costs no wait either: the record of the attempt is the same in both cases."""
    job_id = await left_running(pods, ha)
    with pods.kubernetes.lock:
        pods.kubernetes.pods.clear()
    pods.drivers.drivers[0].kill(-9)
    async with pods.job_manager(**ha, WAYMARK_RECONCILE_WINDOW="300") as second:
        await leads(second)
        await attempt_runs(second, job_id, 2)
        spec = pods.drivers.specs[-1]
        assert spec.restore is not None
        assert spec.restore.checkpoint_id == 1
    assert pods.created == ["1", "2"]


async def test_a_leader_that_died_before_it_created_the_secret_fails_one_attempt(
    pods: PodCluster, ha: dict[str, str]
) -> None:
    job_id = await left_running(pods, ha)
    pods.drivers.drivers[0].kill(-9)
    with pods.kubernetes.lock:  # as if the pod had just been scheduled on the node
        [pod] = pods.kubernetes.pods.values()
        pods.kubernetes.secrets.clear()
        pod["status"] = {"phase": "Pending"}
        pods.kubernetes.nodes[pod["metadata"]["name"]].container = None
    async with pods.job_manager(**ha, start_limit_s=5.0) as second:
        await leads(second)
        await attempt_runs(second, job_id, 2)
        attempts = (await second.get(f"/jobs/{job_id}"))["attempts"]
        assert "did not start within" in attempts[1]["cause"]
        await eventually(lambda: len(pods.kubernetes.pods) == 1)
    assert pods.created == ["1", "2"]
