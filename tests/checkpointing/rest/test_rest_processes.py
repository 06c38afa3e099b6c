"""Answers about the job manager, its executors, and the vertices and the result of a job."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.fake_driver import COUNT
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.urls import read

TASK_MANAGER = {"id", "path", "dataPort", "jmxPort", "timeSinceLastHeartbeat", "slotsNumber", "freeSlots",
                "totalResource", "freeResource", "hardware", "memoryConfiguration", "blocked"}  # fmt: skip
SUBTASK = {"subtask", "status", "attempt", "endpoint", "start-time", "end-time", "duration", "metrics",
           "taskmanager-id", "status-duration"}  # fmt: skip


async def _task_manager(manager: RunningJobManager) -> dict[str, Any]:
    async def listed() -> list[dict[str, Any]]:
        return list((await manager.get("/taskmanagers"))["taskmanagers"])

    (found,) = await eventually(listed)
    return dict(found)


async def test_an_executor_is_a_task_manager(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    found = await _task_manager(manager)

    assert set(found) >= TASK_MANAGER
    assert (found["jobId"], found["path"], found["dataPort"]) == (job_id, "127.0.0.1:4040", 4040)
    assert (found["slotsNumber"], found["freeSlots"]) == (2, 1)
    assert (found["totalResource"]["taskHeapMemory"], found["freeResource"]["taskHeapMemory"]) == (400, 300)
    assert (await manager.get(f"/taskmanagers/{found['id']}"))["id"] == found["id"]


async def test_an_unknown_task_manager_is_not_found(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match="Could not find TaskExecutor nobody") as refusal:
        await manager.get("/taskmanagers/nobody")
    assert refusal.value.status == 404


async def test_a_vertex_with_its_subtasks(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await _task_manager(manager)

    vertex = await manager.get(f"/jobs/{job_id}/vertices/{COUNT.id}")

    assert (vertex["name"], vertex["parallelism"], len(vertex["subtasks"])) == ("count", 2, 2)
    assert set(vertex["subtasks"][0]) >= SUBTASK
    assert {subtask["endpoint"] for subtask in vertex["subtasks"]} == {"127.0.0.1:4040"}
    with pytest.raises(RequestRefused, match="not found"):
        await manager.get(f"/jobs/{job_id}/vertices/{'0' * 32}")


async def test_the_result_of_a_job_that_runs_was_canceled_or_failed(manager: RunningJobManager) -> None:
    canceled = await manager.submit_running()
    assert await manager.get(f"/jobs/{canceled}/execution-result") == {"status": {"id": "IN_PROGRESS"}}
    await manager.cancel(canceled)
    await manager.until(canceled, "CANCELED")

    result = (await manager.get(f"/jobs/{canceled}/execution-result"))["job-execution-result"]
    assert (result["id"], result["application-status"], "failure-cause" in result) == (canceled, "CANCELED", False)


async def test_the_result_of_a_failed_job_has_the_cause(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"restart-strategy.type": "none"})
    await (await manager.driver(1)).report_failure("a bad row")
    await manager.until(job_id, "FAILED")

    result = (await manager.get(f"/jobs/{job_id}/execution-result"))["job-execution-result"]

    assert result["application-status"] == "FAILED"
    assert "a bad row" in result["failure-cause"]["stack-trace"]


async def test_the_configuration_hides_the_token_and_other_passwords(tmp_path: Path) -> None:
    environ = {"WAYMARK_JOBMANAGER_TOKEN": "very-secret", "WAYMARK_ZOOKEEPER_PASSWORD": "very-secret, too"}
    async with running_job_manager(tmp_path, **environ) as manager:
        text = await asyncio.to_thread(_read, f"{manager.address}/jobmanager/config", "very-secret")

    settings = {entry["key"]: entry["value"] for entry in json.loads(text)}
    assert settings["token"] == settings["zookeeper-password"] == "******"
    assert settings["checkpoint-directory"] == manager.settings.checkpoint_directory
    assert "very-secret" not in text


async def test_the_configuration_of_a_job_is_the_submitted_one(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.interval": "5 s"})

    text = await asyncio.to_thread(_read, f"{manager.address}/jobs/{job_id}/jobmanager/config")

    assert {"key": "execution.checkpointing.interval", "value": "5 s"} in json.loads(text)


async def test_the_log_can_be_read_from_afar(manager: RunningJobManager) -> None:
    logging.getLogger("checkpointing.jobs").warning("one line of the log")

    text = await asyncio.to_thread(_read, f"{manager.address}/jobmanager/log")
    (log,) = (await manager.get("/jobmanager/logs"))["logs"]

    assert "WARNING checkpointing.jobs: one line of the log" in text
    assert (log["name"], log["size"] >= len(text), log["mtime"] > 0) == ("jobmanager.log", True, True)
    assert text == await asyncio.to_thread(_read, f"{manager.address}/jobmanager/logs/jobmanager.log")
    with pytest.raises(RequestRefused, match=r"there is jobmanager\.log"):
        await manager.get("/jobmanager/logs/other.log")


def _read(url: str, token: str = "") -> str:
    return read(url, {"Authorization": f"Bearer {token}"} if token else {}).decode()
