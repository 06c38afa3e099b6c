# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Two jobs with different Python environments, which the job manager created, and with separate secrets.

The environments (1 GB each) are kept in WAYMARK_PYSPARK_CACHE, see tests/pyspark_environments.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from checkpointing.jobs.launching.local import LocalDriverLauncher
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import PROGRAMS, REAL_DRIVER_S
from tests.pyspark_environments import CACHE

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1800)]

LIMIT_S = 900.0
OLDER = {"pyspark": "4.2.1", "pandas": "2.2.3"}
NEWER = {"pyspark": "4.3.0", "pandas": "2.3.3"}


@pytest_asyncio.fixture
async def manager(tmp_path: Path, java_home: Path) -> AsyncIterator[RunningJobManager]:
    launcher: Any = LocalDriverLauncher({**os.environ}, lambda: java_home, tmp_path / "state")
    environ = {"WAYMARK_ENVIRONMENT_DIR": str(CACHE / "environments")}
    running = RunningJobManager(tmp_path, launcher, environ, limit_s=REAL_DRIVER_S)
    await running.start()
    yield running
    await running.shut_down()


def requirements(versions: dict[str, str]) -> str:
    return "\n".join([*(f"{name}=={version}" for name, version in versions.items()), "pyarrow"])


async def started(
    manager: RunningJobManager, output: Path, configuration: dict[str, str], function: str = "looks"
) -> str:
    jar = await manager.upload((PROGRAMS / "whole_environment.py").read_text(), "whole_environment.py")
    body = {
        "entryClass": f"whole_environment.py:{function}",
        "programArgsList": ["--output", str(output)],
        "parallelism": 1,
        "flinkConfiguration": {"restart-strategy.type": "none", **configuration},
    }
    return str((await manager.post(f"/jars/{jar}/run", body))["jobid"])


async def settled(manager: RunningJobManager, job_id: str) -> list[dict[str, Any]]:
    """Wait until the job runs or has failed, and return its failures."""

    async def is_over() -> bool:
        return await manager.status(job_id) in ("RUNNING", "FAILED")

    await soon(is_over, LIMIT_S)
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    if entries and "pip could not reach" in entries[0]["message"]:
        pytest.skip(entries[0]["message"])
    return list(entries)


async def test_versions_and_secrets_of_two_jobs_are_apart(manager: RunningJobManager, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first_seen, other_seen = tmp_path / "first.json", tmp_path / "other" / "other.json"
    settings = {
        "waymark.python.requirements": requirements(OLDER),
        "waymark.secret.FIRST_PASSWORD": "canary-one",
        "waymark.secret-file.FIRST_KEY": "canary-two",
    }
    first = await started(manager, first_seen, {**settings, "spark.ui.enabled": "true", "spark.ui.port": "0"})
    other = await started(
        manager,
        other_seen,
        {"waymark.python.requirements": requirements(NEWER), "waymark.secret.OTHER_PASSWORD": "canary-three"},
    )
    for job_id in (first, other):
        assert await settled(manager, job_id) == []
    of_first, of_other = json.loads(first_seen.read_text()), json.loads(other_seen.read_text())

    for side in ("driver", "worker"):
        assert (of_first[side]["versions"], of_other[side]["versions"]) == (OLDER, NEWER)
        assert of_first[side]["environ"]["FIRST_PASSWORD"] == "canary-one"
        assert of_other[side]["environ"]["OTHER_PASSWORD"] == "canary-three"
    assert "canary-three" not in json.dumps(of_first)
    assert "canary-one" not in json.dumps(of_other)
    assert "FIRST" not in json.dumps(of_other)

    # A job's secrets are only in the environment of its processes and in one private file.
    key = Path(of_first["driver"]["environ"]["FIRST_KEY_FILE"])
    await manager.checkpoint(first)
    temporaries = key.parents[2]  # temporary files of all drivers, below the state directory if its path is short
    for directory in (manager.settings.state_directory, temporaries):
        found = await asyncio.to_thread(files_with, directory, b"canary")
        assert found == [key] * key.is_relative_to(directory)
    assert key.stat().st_mode & 0o777 == 0o600
    assert not [line for line in await asyncio.to_thread(command_lines) if b"canary" in line]
    assert "canary" not in await asyncio.to_thread(spark_environment, of_first["ui"])
    paths = ["", "/config", "/checkpoints", "/exceptions", "/jobmanager/config", "/logs"]
    assert "canary" not in json.dumps([await manager.get_any(f"/jobs/{first}{path}") for path in paths])

    failed = await started(manager, first_seen, settings, "fails")
    (failure,) = await settled(manager, failed)
    assert failure["message"] == "the server refused ******"
    assert "canary" not in json.dumps(failure)

    await manager.cancel(first)
    await manager.until(first, "CANCELED")
    await soon(lambda: not key.exists())


def files_with(directory: Path, text: bytes) -> list[Path]:
    found = []
    # os.walk skips directories that are removed meanwhile.
    for path in (Path(parent, name) for parent, _, names in os.walk(directory) for name in names):
        try:
            if path.is_file() and text in path.read_bytes():
                found.append(path)
        except FileNotFoundError:
            continue  # the file's batch has ended meanwhile
    return found


def command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue  # the process has ended meanwhile
    return found


def spark_environment(ui: str) -> str:
    """Return the first job's settings as Spark shows them on its page and over its API."""
    (application,) = json.loads(read(f"{ui}/api/v1/applications"))
    settings = read(f"{ui}/api/v1/applications/{application['id']}/environment")
    assert "spark.app.name" in settings
    return settings + read(f"{ui}/environment/")


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
    return text
