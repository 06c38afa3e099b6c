"""The client and Waymark's job manager use the same protocol in every call, over real HTTP, with fake drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpointing.ids import new_id
from monitoring.engine.answers import LogMatches, LogPart
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, bearer
from monitoring.engine.errors import NotFound, Refused
from monitoring.engine.evidence import Answered
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress
from monitoring.polling.known import KnownCluster
from monitoring.polling.observe import observe
from tests.checkpointing.jobs.running_job_manager import PROGRAM, RunningJobManager, eventually, running_job_manager

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as running:
        yield running


@pytest.fixture
async def client(manager: RunningJobManager) -> AsyncIterator[FlinkClient]:
    async with FlinkClient(Connection(manager.address, bearer(manager.settings.token or ""))) as client:
        yield client


async def start(client: FlinkClient, **request: object) -> str:
    """Start a job with a chosen ID, and return this ID."""
    jar_id = await client.upload_jar("wordcount.py", PROGRAM.encode())
    job_id = new_id()
    assert job_id == await client.run_jar(
        jar_id, job_id=job_id, entry_class="wordcount.py:wordcount", job_name="Words", **request
    )
    await running(client, job_id)
    return job_id


async def running(client: FlinkClient, job_id: str) -> None:
    async def is_running() -> bool:
        return (await client.job(job_id)).state == "RUNNING"

    await eventually(is_running)


async def result(client: FlinkClient, job_id: str, trigger_id: str) -> Done[str] | Failed:
    async def ended() -> Done[str] | Failed | None:
        status = await client.savepoint_status(job_id, trigger_id)
        assert not isinstance(status, Forgotten)
        return None if isinstance(status, InProgress) else status

    return await eventually(ended)


async def test_a_running_job_is_observed_completely(manager, client):
    job_id = await start(client, program_args=["--x"], parallelism=2)
    await manager.checkpoint(job_id)
    known = KnownCluster(revision=0, read_at=NOW, needs_version=True)

    observation = await observe(client, known, NOW)

    assert isinstance(observation.answer, Answered)
    assert observation.overview is not None
    assert observation.overview.version.startswith("waymark")
    run = observation.runs[job_id]
    assert run.problem == ""
    assert (run.job.name, run.job.state) == ("Words", "RUNNING")
    assert run.vertices
    assert run.config is not None
    assert run.checkpoints is not None
    assert run.exceptions == ()
    (entry,) = run.checkpoints.history
    reading = run.readings[entry.id]
    assert (entry.status, reading.complete) == ("COMPLETED", True)
    assert set(reading.operators) == {vertex.id for vertex in run.vertices}
    for vertex in run.vertices:
        assert len(reading.operators[vertex.id].subtasks) == vertex.parallelism
    assert run.job_config is not None
    launch = run.job_config.launch
    assert launch is not None
    assert (launch["entry_class"], launch["program_args"], launch["parallelism"]) == (
        "wordcount.py:wordcount",
        ["--x"],
        2,
    )


async def test_a_launch_record_has_its_secrets_although_the_jobs_configuration_hides_them(manager, client):
    secrets = {"spark.hadoop.fs.s3a.secret.key": "abc123"}
    job_id = await start(client, program_args=["--password=abc123"], configuration=secrets)
    shown = (await manager.get(f"/jobs/{job_id}/config"))["launch"]
    launch = (await client.job_config(job_id)).launch

    assert "abc123" not in str(shown)
    assert launch is not None
    assert (launch["program_args"], launch["configuration"]) == (
        ["--password=abc123"],
        {**secrets, "pipeline.name": "Words"},
    )


async def test_a_repeated_request_takes_one_savepoint(client):
    job_id, trigger_id = await start(client), new_id()
    for _ in range(2):
        assert await client.trigger_savepoint(job_id, trigger_id) == trigger_id
    done = await result(client, job_id, trigger_id)
    assert isinstance(done, Done)
    savepoints = [entry for entry in (await client.checkpoints(job_id)).history if entry.is_savepoint]
    assert [entry.external_path for entry in savepoints] == [done.result]


async def test_a_job_stops_with_a_savepoint(client):
    job_id, trigger_id = await start(client), new_id()
    await client.stop_with_savepoint(job_id, trigger_id)
    assert isinstance(await result(client, job_id, trigger_id), Done)

    async def finished() -> bool:
        return (await client.job(job_id)).state == "FINISHED"

    await eventually(finished)


async def test_a_job_is_canceled(client):
    job_id = await start(client)
    await client.cancel(job_id)

    async def canceled() -> bool:
        return (await client.job(job_id)).state == "CANCELED"

    await eventually(canceled)


async def test_a_checkpoint_on_request(client):
    assert await client.trigger_checkpoint(await start(client), trigger := new_id()) == trigger


async def test_an_invalid_savepoint_is_detected_before_it_is_used(manager, client, tmp_path):
    verdict = await client.validate_savepoint(f"file:{tmp_path}/nowhere", "wordcount.py:wordcount")
    assert verdict is not None
    assert not verdict.valid
    assert verdict.reason


async def test_unknown_objects_of_the_job_manager(client):
    with pytest.raises(NotFound, match="not found"):
        await client.checkpoints(new_id())
    assert await client.savepoint_status(new_id(), new_id()) == Forgotten()
    with pytest.raises((Refused, NotFound)):
        await client.run_jar("nothing.py", job_id=new_id())
    assert await client.jars() == ()


async def test_the_logs_of_a_jobs_drivers_are_listed_read_and_searched(manager, client):
    job_id = await start(client)
    directory = manager.settings.state_directory / "jobs" / job_id / "attempt-1"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "driver.log").write_text("2026-11-25 10:00:00,000 INFO starts\nAn Error\n")

    (log,) = await client.driver_logs(job_id)
    assert (log.name, log.attempt, log.size, log.is_first_failure, log.elsewhere) == ("driver-1.log", 1, 45, False, "")
    assert await client.driver_log(job_id, log.name, -1, 9) == LogPart(36, b"An Error\n", 45)
    assert await client.driver_log(job_id, log.name, 0, 4) == LogPart(0, b"2026", 45)
    assert await client.driver_log(job_id, log.name, 45, 100) == LogPart(45, b"", 45)
    assert await client.search_log(job_id, log.name, "an error") == LogMatches(((36, "An Error"),), truncated=False)
    assert await client.log_position(job_id, log.name, datetime(2026, 11, 24, tzinfo=UTC)) == 0
    with pytest.raises(NotFound):
        await client.driver_log(job_id, "driver-2.log", 0, 4)
