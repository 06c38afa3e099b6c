"""Flink's unmodified command line controls PySpark jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.checkpointing.jobs.fake_driver import FakeLauncher
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager
from tests.flink_distribution import FlinkCommandLine, flink_or_skip
from tests.monitoring.flink.program import compile_jobs, packed

pytestmark = pytest.mark.flink

Flink = Callable[..., Awaitable[tuple[int, str]]]
UNKNOWN_JOB = "0" * 31 + "1"


@pytest.fixture(scope="session")
def flink_libraries() -> Path:
    return flink_or_skip()


@pytest.fixture
def flink(manager: RunningJobManager, flink_libraries: Path, java_home: Path, tmp_path: Path) -> Flink:
    command_line = FlinkCommandLine(flink_libraries, java_home, tmp_path / "flink-conf", manager.address)

    async def run(*arguments: str) -> tuple[int, str]:
        return await asyncio.to_thread(command_line.run, *arguments)

    return run


async def test_list_shows_running_and_with_a_also_ended_jobs(manager: RunningJobManager, flink: Flink) -> None:
    running, ended = await manager.submit_running(jobName="Words"), await manager.submit_running(jobName="Letters")
    await manager.cancel(ended)
    await manager.until(ended, "CANCELED")

    code, text = await flink("list")
    assert (code, f"{running} : Words (RUNNING)" in text, ended in text) == (0, True, False)
    code, text = await flink("list", "-a")
    assert (code, f"{ended} : Letters (CANCELED)" in text) == (0, True)


async def test_savepoint_checkpoint_and_disposal(manager: RunningJobManager, flink: Flink) -> None:
    job_id = await manager.submit_running()

    code, text = await flink("savepoint", job_id)
    path = text.partition("Path: file:")[2].split()[0]
    assert code == 0
    assert await asyncio.to_thread(Path(path, "_metadata").is_file)
    code, text = await flink("checkpoint", job_id)
    latest = (await manager.get(f"/jobs/{job_id}/checkpoints"))["latest"]["completed"]["id"]
    assert (code, f"Checkpoint {latest} for job {job_id} completed." in text) == (0, True)
    code, text = await flink("savepoint", "-d", f"file:{path}")
    assert (code, "disposed" in text) == (0, True)
    assert not await asyncio.to_thread(Path(path).exists)


@pytest.mark.nightly
@pytest.mark.nightly
@pytest.mark.nightly
async def test_stop_with_a_savepoint_ends_the_job(manager: RunningJobManager, flink: Flink) -> None:
    job_id = await manager.submit_running()
    target = manager.settings.savepoint_directory

    code, text = await flink("stop", "--savepointPath", target, job_id)

    assert (code, f"Savepoint completed. Path: file:{target}/savepoint-{job_id[:6]}-" in text) == (0, True)
    await manager.until(job_id, "FINISHED")


async def test_client_sends_the_token_from_its_variable(flink_libraries: Path, java_home: Path, tmp_path: Path) -> None:
    launcher = FakeLauncher(asyncio.get_running_loop())
    launcher.headers = {"Authorization": "Bearer secret"}
    async with running_job_manager(tmp_path, launcher, WAYMARK_JOBMANAGER_TOKEN="secret") as manager:
        job_id = await manager.submit_running(jobName="Words")
        with_it, without = (
            FlinkCommandLine(flink_libraries, java_home, tmp_path / "conf", manager.address, token)
            for token in ("secret", "")
        )
        code, text = await asyncio.to_thread(with_it.run, "list")
        assert (code, f"{job_id} : Words (RUNNING)" in text) == (0, True)
        code, text = await asyncio.to_thread(without.run, "list")
        assert (code != 0, "A bearer token is needed" in text) == (True, True)
    await launcher.close()


async def test_run_is_refused_with_one_sentence_at_the_first_try(
    flink: Flink, flink_libraries: Path, java_home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    classes = await asyncio.to_thread(compile_jobs, flink_libraries, java_home, tmp_path)
    jar = tmp_path / "count.jar"
    await asyncio.to_thread(jar.write_bytes, packed(classes, "CountJob"))
    caplog.set_level("INFO", "checkpointing.rest.jobs")

    code, text = await flink("run", "-d", str(jar), str(tmp_path))

    assert (code, "This job manager runs PySpark programs, not Flink jobs" in text) == (1, True)
    assert caplog.text.count("refused a Flink job graph") == 1


async def test_cancel_ends_the_job(manager: RunningJobManager, flink: Flink) -> None:
    job_id = await manager.submit_running()

    code, text = await flink("cancel", job_id)

    assert (code, f"Cancelled job {job_id}." in text) == (0, True)
    await manager.until(job_id, "CANCELED")


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("savepoint", UNKNOWN_JOB), f"Could not find Flink job ({UNKNOWN_JOB})"),
        (("savepoint", "-d", "{savepoints}/savepoint-000000-000000000000"), "there is no _metadata"),
        (("savepoint", UNKNOWN_JOB, "/elsewhere"), "/elsewhere is outside the savepoint directories"),
        (("cancel", UNKNOWN_JOB), f"Job {UNKNOWN_JOB} not found"),
    ],
)
async def test_a_failure_is_reported_at_once_with_its_cause(
    manager: RunningJobManager, flink: Flink, arguments: tuple[str, ...], cause: str
) -> None:
    savepoints = manager.settings.savepoint_directory

    code, text = await flink(*(each.replace("{savepoints}", savepoints) for each in arguments))

    assert code != 0
    assert cause in text
    # Flink's client logs this for an answer that it cannot parse, before it retries.
    assert "neither of the expected type" not in text
