from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager


@pytest_asyncio.fixture
async def manager(tmp_path: Path) -> AsyncIterator[RunningJobManager]:
    async with running_job_manager(tmp_path) as running:
        yield running
