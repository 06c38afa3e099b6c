# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from checkpointing.rest.client import JobManagerClient, RequestRefused
from tests.checkpointing.jobs.fake_driver import FakeLauncher
from tests.checkpointing.jobs.running_job_manager import PROGRAM, running_job_manager


async def test_every_request_needs_the_token(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_JOBMANAGER_TOKEN="secret") as manager:
        assert await manager.get("/jobs") == {"jobs": []}
        for token in (None, "wrong"):
            manager.client = JobManagerClient(manager.address, token)
            with pytest.raises(RequestRefused) as refusal:
                await manager.get("/jobs")
            assert refusal.value.status == 401


async def test_a_driver_needs_the_token_and_finds_it_in_a_file(tmp_path: Path) -> None:
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


async def test_submit_sends_the_token_of_up_only_to_the_job_manager_of_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`manage.py` takes these variables from the running `up`."""
    monkeypatch.setenv("WAYMARK_VAR", str(tmp_path))
    monkeypatch.setenv("WAYMARK_JOBMANAGER_TOKEN_FILE", str(tmp_path / "jobmanager-token"))
    (tmp_path / "jobmanager-token").write_text("secret")
    (tmp_path / "words.py").write_text(PROGRAM)

    async def submit() -> str:
        out = StringIO()
        await asyncio.to_thread(call_command, "submit", f"{tmp_path / 'words.py'}:wordcount", stdout=out)
        return out.getvalue()

    launcher = FakeLauncher(asyncio.get_running_loop())
    launcher.headers = {"Authorization": "Bearer secret"}
    async with running_job_manager(tmp_path, launcher, WAYMARK_JOBMANAGER_TOKEN="secret") as manager:
        monkeypatch.setenv("WAYMARK_EMBEDDED_CLUSTER_URL", manager.address)
        assert (await submit()).rstrip().endswith("RUNNING")
        monkeypatch.setenv("WAYMARK_EMBEDDED_CLUSTER_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("WAYMARK_JOBMANAGER_URL", manager.address)
        with pytest.raises(CommandError, match="A bearer token is needed"):
            await submit()
    await launcher.close()
