# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from checkpointing.rest.client import JobManagerClient, RequestRefused
from tests.checkpointing.jobs.fake_driver import FakeLauncher
from tests.checkpointing.jobs.running_job_manager import running_job_manager


async def test_every_request_needs_the_token(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_JOBMANAGER_TOKEN="secret") as manager:
        assert await manager.get("/jobs") == {"jobs": []}
        for token in (None, "wrong"):
            manager.client = JobManagerClient(manager.address, token)
            with pytest.raises(RequestRefused) as refusal:
                await manager.get("/jobs")
            assert refusal.value.status == 401


async def test_a_driver_needs_the_token_and_finds_it_in_a_file(tmp_path: Path) -> None:
    import asyncio

    launcher = FakeLauncher(asyncio.get_running_loop())
    launcher.headers = {"Authorization": "Bearer secret"}
    async with running_job_manager(tmp_path, launcher, WAYMARK_JOBMANAGER_TOKEN="secret") as manager:
        await manager.submit_running()

        token_file = launcher.specs[0].token_file
        assert token_file is not None
        assert Path(token_file).read_text() == "secret"
        assert Path(token_file).stat().st_mode & 0o077 == 0
        with pytest.raises(InvalidStatus):
            async with connect(manager.address.replace("http", "ws") + "/drivers", proxy=None):
                pass
    await launcher.close()
