from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from checkpointing.jobs import attempt_starter, job_recovery, retries
from tests.checkpointing.jobs.cluster import Cluster
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager


@pytest.fixture(autouse=True)
def temporary_files_are_the_tests_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pytest's directory the place of temporary files.

    Its paths are too long for sockets, so drivers would use the machine's temporary directory.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(autouse=True)
def what_failed_is_retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(job_recovery, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(attempt_starter, "SAY_AFTER_S", 0.2)


@pytest_asyncio.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, zookeeper_hosts: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper_hosts)
    yield cluster
    await cluster.launcher.close()
