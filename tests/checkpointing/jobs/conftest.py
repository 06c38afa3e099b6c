from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.checkpointing.jobs.cluster import Cluster
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager


@pytest_asyncio.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, zookeeper_hosts: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper_hosts)
    yield cluster
    await cluster.launcher.close()
