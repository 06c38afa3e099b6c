"""A job whose driver is a pod: the pod is killed, evicted or pending, or the API is unavailable."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.played_driver import CONFIGURATION, PodCluster, pod_cluster
from tests.checkpointing.jobs.running_job_manager import PROGRAM, RunningJobManager, eventually


@pytest_asyncio.fixture
async def pods(tmp_path: Path) -> AsyncIterator[PodCluster]:
    async with pod_cluster(tmp_path) as cluster:
        yield cluster


def pod_of(job_id: str, attempt: int) -> str:
    return f"waymark-{job_id}-{attempt}"


async def attempt_runs(manager: RunningJobManager, job_id: str, attempt: int) -> dict[str, Any]:
    async def runs() -> dict[str, Any] | None:
        job = await manager.get(f"/jobs/{job_id}")
        return job if job["state"] == "RUNNING" and job["attempts"][0]["attempt"] == attempt else None

    return dict(await eventually(runs))


async def last_exception(manager: RunningJobManager, job_id: str) -> dict[str, Any]:
    found = await manager.get(f"/jobs/{job_id}/exceptions")
    return dict(found["exceptionHistory"]["entries"][0])


async def test_a_pod_that_is_killed_is_followed_by_one_that_restores_the_checkpoint(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        job_id = await manager.submit_running(CONFIGURATION)
        assert await manager.checkpoint(job_id) == 1
        pods.kubernetes.container(pod_of(job_id, 1)).kill()
        await attempt_runs(manager, job_id, 2)

        spec = pods.drivers.specs[-1]
        assert spec.restore is not None
        assert (spec.attempt, spec.restore.checkpoint_id) == (2, 1)
        await eventually(lambda: list(pods.kubernetes.pods) == [pod_of(job_id, 2)])
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
    assert (pods.created, pods.kubernetes.pods, pods.kubernetes.secrets) == (["1", "2"], {}, {})


async def test_an_evicted_pod_is_an_exception_with_its_reason_and_its_last_lines(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        job_id = await manager.submit_running(CONFIGURATION)
        pods.kubernetes.evict(pod_of(job_id, 1), "The node was low on resource: memory.")
        await attempt_runs(manager, job_id, 2)
        entry = await last_exception(manager, job_id)
        assert entry["exceptionName"] == "PodEvicted"
        assert "The node was low on resource: memory." in entry["stacktrace"]
        assert "the last line of the log" in entry["stacktrace"]


async def test_a_pod_that_waits_for_a_node_is_waited_for_beyond_the_registration_timeout(pods: PodCluster) -> None:
    limit_s = 4.0
    pods.kubernetes.schedules = False
    async with pods.job_manager(WAYMARK_REGISTRATION_TIMEOUT=str(limit_s)) as manager:
        job_id = await manager.submit(CONFIGURATION)
        await eventually(lambda: pods.kubernetes.created)
        created_s = time.monotonic()
        await eventually(lambda: time.monotonic() - created_s > 1.2 * limit_s)
        pods.kubernetes.schedules = True
        await attempt_runs(manager, job_id, 1)
    assert pods.created == ["1"]


async def test_a_pod_that_never_starts_ends_the_job_by_its_restart_strategy_with_the_pods_reason(
    pods: PodCluster,
) -> None:
    pods.kubernetes.pulls_images = False
    async with pods.job_manager(start_limit_s=0.1) as manager:
        job_id = await manager.submit({**CONFIGURATION, "restart-strategy.fixed-delay.attempts": "1"})
        await manager.until(job_id, "FAILED")
        entry = await last_exception(manager, job_id)
        assert entry["exceptionName"] == "PodNotStarted"
        assert 'ImagePullBackOff: Back-off pulling image "registry/streams:1"' in entry["stacktrace"]
        await eventually(lambda: not pods.kubernetes.pods)
    assert pods.created == ["1", "2"]


async def test_a_connected_driver_keeps_running_while_the_api_is_unreachable(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        job_id = await manager.submit_running(CONFIGURATION)
        pods.kubernetes.is_away = True
        calls = len(pods.kubernetes.calls)
        await eventually(lambda: len(pods.kubernetes.calls) > calls + 10)
        assert await manager.checkpoint(job_id) == 1
        job = await attempt_runs(manager, job_id, 1)
        assert job["attempts"][0]["connected"]
        pods.kubernetes.is_away = False
    assert pods.created == ["1"]


async def test_a_driver_that_dies_while_the_api_is_unreachable_is_replaced_once_it_answers(pods: PodCluster) -> None:
    async with pods.job_manager(WAYMARK_HEARTBEAT_TIMEOUT="5") as manager:
        job_id = await manager.submit_running(CONFIGURATION)
        pods.kubernetes.is_away = True
        pods.kubernetes.container(pod_of(job_id, 1)).kill()
        await manager.until(job_id, "FAILING")
        assert (await last_exception(manager, job_id))["exceptionName"] == "HeartbeatTimeout"
        assert pods.created == ["1"]
        pods.kubernetes.is_away = False
        await attempt_runs(manager, job_id, 2)
        await eventually(lambda: list(pods.kubernetes.pods) == [pod_of(job_id, 2)])


async def test_a_pod_neither_waits_for_nor_uses_memory_of_the_job_managers_machine(pods: PodCluster) -> None:
    process = {"waymark.launcher": "process"}
    async with pods.job_manager(WAYMARK_DRIVER_LIMIT="1", WAYMARK_DRIVER_STARTS="1") as manager:
        first = await manager.submit_running(process)
        waiting = await manager.submit(process)
        pod = await manager.submit_running({**CONFIGURATION, "waymark.driver.memory": "900gb"})
        assert (await manager.get(f"/jobs/{pod}"))["launch-wait"] is None
        assert (await manager.get(f"/jobs/{waiting}"))["launch-wait"]["for"] == "drivers"
        await manager.cancel(first)
        await manager.until(waiting, "RUNNING")
    assert pods.created == ["1"]


async def test_the_program_is_for_the_driver_of_the_current_attempt(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        job_id = await manager.submit_running(CONFIGURATION)
        secret = pods.drivers.specs[0].secret
        assert await program(manager, job_id, 1, secret) == (200, PROGRAM)
        for attempt, offered in ((1, "guessed"), (1, ""), (2, secret)):
            status, text = await program(manager, job_id, attempt, offered)
            assert (status, "the secret of its current driver is needed" in text) == (403, True)


async def program(manager: RunningJobManager, job_id: str, attempt: int, secret: str) -> tuple[int, str]:
    def read() -> tuple[int, str]:
        url = f"{manager.address}/jobs/{job_id}/attempts/{attempt}/program"
        request = urllib.request.Request(url, headers={"X-Waymark-Attempt-Secret": secret})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(read)


async def test_a_job_that_could_not_run_as_a_pod_is_refused_at_its_submission(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        with pytest.raises(RequestRefused, match=r"spark\.kubernetes\.container\.image: '' is not allowed"):
            await manager.submit({})
        requirements = {**CONFIGURATION, "waymark.python.requirements": "/no/such/file.txt"}
        with pytest.raises(RequestRefused, match=r"waymark\.python\.requirements: .* an image with the packages"):
            await manager.submit(requirements)
    assert pods.created == []


async def test_python_is_searched_where_the_driver_runs(pods: PodCluster) -> None:
    python = {"waymark.python": "/opt/of/the/image/bin/python"}
    async with pods.job_manager() as manager:
        await manager.submit_running({**CONFIGURATION, **python})
        with pytest.raises(RequestRefused, match="a file that exists on the job manager's machine"):
            await manager.submit({**python, "waymark.launcher": "process"})
    assert [pod["spec"]["containers"][0]["command"][0] for pod in pods.kubernetes.created] == [python["waymark.python"]]


async def test_a_job_may_choose_a_process_of_this_machine(pods: PodCluster) -> None:
    async with pods.job_manager() as manager:
        job_id = await manager.submit_running({"waymark.launcher": "process"})
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
        with pytest.raises(RequestRefused, match=r"waymark\.launcher: 'docker' is not allowed; process or kubernetes"):
            await manager.submit({"waymark.launcher": "docker"})
    assert pods.created == []
