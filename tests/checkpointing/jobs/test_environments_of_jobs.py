"""Jobs whose Python environments the job manager creates: what they show in the meantime, and how they fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from django.core.management import call_command

from checkpointing.rest.job_operations import time_text
from tests.checkpointing.jobs.package_index import Index, pip_settings, serving, set_all, wheels
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

REQUIREMENTS = "waymark.python.requirements"
OFTEN = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "50 ms",
}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(Index(wheels(tmp_path / "wheels", colours="1.0"))) as index:
        set_all(monkeypatch, pip_settings(index_url=index.url))
        yield index


@pytest_asyncio.fixture
async def manager(tmp_path: Path, index: Index) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as manager:
        yield manager


async def environment_of(manager: RunningJobManager, job_id: str) -> Any:
    return (await manager.get(f"/jobs/{job_id}"))["python-environment"]


async def wait_with_pip_output(manager: RunningJobManager, job_id: str) -> Any:
    """Return why the job waits, or None until pip has printed a line."""
    wait = (await manager.get(f"/jobs/{job_id}"))["launch-wait"]
    return wait if wait is not None and wait["output"] else None


async def shown_by_command(manager: RunningJobManager, job_id: str) -> str:
    out = StringIO()
    await asyncio.to_thread(call_command, "job", "show", job_id, "--jobmanager", manager.address, stdout=out)
    return out.getvalue()


async def test_a_job_shows_that_its_environment_is_being_prepared_and_delays_no_other_job(
    manager: RunningJobManager, index: Index
) -> None:
    index.gate.clear()
    job_id = await manager.submit({REQUIREMENTS: "colours==1.0\n"})
    await eventually(lambda: index.requests)
    wait = dict(await eventually(lambda: wait_with_pip_output(manager, job_id)))
    since, output = wait.pop("since"), wait.pop("output")
    assert wait == {"for": "environment", "kind": "requirements", "step": "installing", "failure": None}
    assert output == f"Looking in indexes: {index.url}"
    job = await manager.get(f"/jobs/{job_id}")
    assert (job["state"], job["python-environment"]["status"]) == ("CREATED", "PREPARING")
    assert job["start-time"] <= since <= job["now"]
    shown = await shown_by_command(manager, job_id)
    assert f"The Python environment is being prepared (installing) since {time_text(since)}; pip's last line: " in shown
    other = await manager.submit_running()
    assert await environment_of(manager, other) is None
    assert (await manager.get(f"/jobs/{other}"))["launch-wait"] is None
    canceled = await manager.submit({REQUIREMENTS: "colours==1.0\n"})
    await manager.cancel(canceled)
    await manager.until(canceled, "CANCELED")
    assert (await manager.get(f"/jobs/{canceled}"))["launch-wait"] is None

    index.gate.set()
    await manager.until(job_id, "RUNNING")
    ready = await environment_of(manager, job_id)
    assert (await manager.get(f"/jobs/{job_id}"))["launch-wait"] is None
    (spec,) = (driver.spec for driver in manager.launcher.drivers if driver.spec.job_id == job_id)
    assert ready["status"] == "READY"
    assert spec.configuration["waymark.python"].endswith(f"/{ready['name']}/environment/bin/python")
    assert REQUIREMENTS not in spec.configuration
    assert "made from requirements: ready" in await shown_by_command(manager, job_id)
    assert (await manager.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == {REQUIREMENTS: "colours==1.0\n"}


async def test_a_permanent_error_fails_the_job_before_an_attempt_with_the_output_of_pip(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit({REQUIREMENTS: "colours==9\n", **OFTEN})
    await manager.until(job_id, "FAILED")
    details = await manager.get(f"/jobs/{job_id}")
    (failure,) = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]

    assert failure["exceptionName"] == "PythonEnvironmentFailed"
    assert f"{REQUIREMENTS}: pip could not install the requirements: " in failure["message"]
    assert "No matching distribution found for colours==9" in failure["stacktrace"]
    assert (details["attempts"], details["restarts"]) == ([], 0)
    assert details["python-environment"]["status"] == "FAILED"


async def test_an_unreachable_index_is_retried(manager: RunningJobManager, index: Index) -> None:
    index.status = 503
    job_id = await manager.submit({REQUIREMENTS: "colours==1.0\n", **OFTEN})

    async def has_failed() -> bool:
        return bool((await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"])

    await eventually(has_failed)
    assert manager.launcher.drivers == []
    index.gate.clear()
    wait = await eventually(lambda: wait_with_pip_output(manager, job_id))
    assert wait["failure"].startswith(f"{REQUIREMENTS}: pip could not reach its index: ")
    assert "an earlier preparation failed: " in await shown_by_command(manager, job_id)
    index.status = 200
    index.gate.set()
    await manager.until(job_id, "RUNNING")


@pytest.mark.nightly
async def test_an_environment_is_kept_while_a_job_needs_it(tmp_path: Path, index: Index) -> None:
    async with running_job_manager(tmp_path, WAYMARK_ENVIRONMENT_RETENTION="0.2") as manager:
        job_id = await manager.submit_running({REQUIREMENTS: "colours==1.0\n", **OFTEN})
        home = tmp_path / "state" / "environments" / (await environment_of(manager, job_id))["name"]
        seen = index.requests
        unneeded = home.with_name(f"{'0' * 32}-{'0' * 8}")
        await asyncio.to_thread(_make_old, unneeded)
        await eventually(lambda: not unneeded.exists())
        (await manager.driver(1)).kill(-9)
        second = await manager.driver(2)
        assert second.spec.configuration["waymark.python"].startswith(str(home))
        assert index.requests == seen, "it was not made again"

        await manager.until(job_id, "RUNNING")
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
        await eventually(lambda: not home.exists())


def _make_old(directory: Path) -> None:
    directory.mkdir()
    (directory / "ready.json").write_text("{}")
    os.utime(directory / "ready.json", (1_000, 1_000))
