# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""A job's checkpoints go to the storage that its submission requests. Real job manager, fake drivers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.settings import InvalidSettings, JobManagerSettings
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import files_for, verify
from checkpointing.storage.locations import JOB_MANAGER_MEMORY
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.storage_servers import StorageServer

IN_MEMORY = {"execution.checkpointing.storage": "jobmanager"}
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as running:
        yield running


async def test_a_job_with_its_checkpoints_in_memory_is_restored_from_them(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(IN_MEMORY | RESTART)
    assert await manager.checkpoint(job_id) == 1
    assert await manager.checkpoint(job_id) == 2
    memory = f"{JOB_MANAGER_MEMORY}/{job_id}"
    assert "chk-1" not in files_for(memory).names(memory), "subsumed"
    assert not list(Path(manager.settings.checkpoint_directory).glob("*/chk-*")), "nothing on disk"

    statistics = await manager.get(f"/jobs/{job_id}/checkpoints")
    assert statistics["latest"]["completed"]["external_path"] == "<checkpoint-not-externally-addressable>"
    assert (await manager.get(f"/jobs/{job_id}/checkpoints/config"))["checkpoint_storage"] == (
        "JobManagerCheckpointStorage"
    )

    (await manager.driver(1)).kill(1)
    second = await manager.driver(2)
    restore = second.spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 2
    assert len(verify(restore.directory, deep=True).files) > 0, "written out for the driver"
    assert restore.directory.startswith(second.spec.work_directory)

    await manager.until(job_id, "RUNNING")
    savepoint = await manager.savepoint(job_id)
    assert verify(savepoint["location"]).properties.is_savepoint
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
    await eventually(lambda: not files_for(memory).names(memory))


@pytest.mark.parametrize(
    ("configuration", "problem"),
    [
        ({"execution.checkpointing.storage": "rocksdb"}, "'rocksdb' is not allowed; filesystem or jobmanager"),
        (
            IN_MEMORY | {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"},
            "'RETAIN_ON_CANCELLATION' is not allowed; use NO_EXTERNALIZED_CHECKPOINTS with",
        ),
    ],
)
async def test_a_storage_that_cannot_be_is_refused_at_submission(
    manager: RunningJobManager, configuration: dict[str, str], problem: str
) -> None:
    with pytest.raises(RequestRefused, match=problem):
        await manager.submit(configuration)


@pytest.mark.zookeeper
async def test_memory_is_refused_with_zookeeper_because_the_next_leader_cannot_read_it(
    zookeeper_hosts: str, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, zookeeper_hosts)
    async with cluster.job_manager() as manager:
        await leads(manager)
        with pytest.raises(RequestRefused, match="the next leader cannot read this job manager's memory"):
            await manager.submit(IN_MEMORY)
    await cluster.launcher.close()


async def test_checkpoints_and_savepoints_are_stored_in_the_configured_places(
    tmp_path: Path, s3: StorageServer, admitted: Callable[[StorageServer], None]
) -> None:
    admitted(s3)
    root = f"{s3.root}/{uuid.uuid4().hex}"
    settings = {"WAYMARK_CHECKPOINT_DIR": f"{root}/cp", "WAYMARK_SAVEPOINT_DIR": f"{root}/sp"}
    async with running_job_manager(tmp_path, **settings) as manager:
        job_id = await manager.submit_running(RESTART)
        assert await manager.checkpoint(job_id) == 1
        (await manager.driver(1)).kill(1)
        restore = (await manager.driver(2)).spec.restore
        assert restore is not None
        assert restore.directory == f"{root}/cp/{job_id}/chk-1"
        await manager.until(job_id, "RUNNING")
        location = (await manager.savepoint(job_id))["location"]
        assert location.startswith(f"{root}/sp/savepoint-")
        with pytest.raises(RequestRefused, match="outside the savepoint directories"):
            await manager.post(f"/jobs/{job_id}/savepoints", {"target-directory": f"{s3.root}/elsewhere"})
        verdict = await manager.post("/savepoints/validate", {"savepointPath": location})
        assert verdict["valid"], verdict
        config = str(await manager.get("/config")) + str(await manager.get("/jobmanager/config"))
        assert not [secret for secret in s3.environment.values() if "http" not in secret and secret in config]
        trigger = (await manager.post("/savepoint-disposal", {"savepoint-path": location}))["request-id"]
        await manager.operation(f"/savepoint-disposal/{trigger}")
        assert not files_for(root).names(f"{root}/sp")


async def test_storage_that_does_not_answer_fails_its_checkpoint_and_the_job_continues(tmp_path: Path) -> None:
    settings = {"WAYMARK_CHECKPOINT_DIR": "ftp://127.0.0.1:9/cp"}
    async with running_job_manager(tmp_path, **settings) as manager:
        job_id = await manager.submit_running({"execution.checkpointing.tolerable-failed-checkpoints": "3"})
        trigger = (await manager.post(f"/jobs/{job_id}/checkpoints"))["request-id"]
        result: dict[str, Any] = await manager.operation(f"/jobs/{job_id}/checkpoints/{trigger}")
        assert "ftp://127.0.0.1:9/cp" in str(result["failureCause"])
        assert "cannot be reached" in str(result["failureCause"])
        assert await manager.status(job_id) == "RUNNING"
        assert (await manager.savepoint(job_id))["location"], "what lies elsewhere is not concerned"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("s3:/bucket/x", "two slashes"),
        ("nosuch://host/x", "is not supported as storage for snapshots"),
        ("ftp://user:hunter2@host/x", "must not contain a password"),
    ],
)
def test_a_setting_that_is_not_a_location_is_reported_with_its_variable(value: str, problem: str) -> None:
    with pytest.raises(
        InvalidSettings, match=f"WAYMARK_SAVEPOINT_DIR: this location is not allowed.*{problem}"
    ) as error:
        JobManagerSettings.from_environ({"WAYMARK_SAVEPOINT_DIR": value})
    assert "hunter2" not in str(error.value)


def test_a_relative_path_is_made_absolute_and_an_address_is_unchanged() -> None:
    settings = JobManagerSettings.from_environ(
        {"WAYMARK_CHECKPOINT_DIR": "cp", "WAYMARK_SAVEPOINT_ROOTS": "s3://bucket/sp/, file:/sp"}
    )
    assert settings.checkpoint_directory == str(Path("cp").absolute())
    assert settings.more_savepoint_roots == ("s3://bucket/sp", "/sp")
