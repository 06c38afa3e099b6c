"""A job manager is killed while it imports a checkpoint location. The next one removes the incomplete copy."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest

from checkpointing.ids import new_id
from checkpointing.jobs import retries
from checkpointing.storage import verify
from tests.checkpointing.coordinator.sigkill import is_killed_at
from tests.checkpointing.jobs.running_job_manager import eventually, running_job_manager
from tests.checkpointing.spark.recordings import unpacked
from tests.profile import PROFILE

SETTINGS = {"WAYMARK_HEARTBEAT_INTERVAL": "0.05", "WAYMARK_HEARTBEAT_TIMEOUT": "0.2"}


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return unpacked("count in rocksdb format 2", tmp_path / "count").location


@pytest.mark.nightly
def test_an_import_killed_at_any_step_leaves_no_files(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.05)
    step, was_killed = 0, True
    while was_killed:
        directory = tmp_path / str(step)
        temporary = directory / "tmp"
        temporary.mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        state = directory / "state"
        was_killed = is_killed_at(step, directory, partial(_import, directory, location))
        asyncio.run(_nothing_incomplete_stays(directory))
        complete = list(state.glob("savepoints/*"))
        assert was_killed or len(complete) == 1
        for savepoint in complete:
            verify(str(savepoint), deep=True)
        shutil.rmtree(directory)
        step += PROFILE.kill_every
    assert step > 40


def _import(directory: Path, location: Path) -> None:
    asyncio.run(_imported(directory, location))


async def _imported(directory: Path, location: Path) -> None:
    async with running_job_manager(directory) as manager:
        body = {"checkpoints": {"": str(location)}, "entryClass": "words.py", "triggerId": new_id()}
        trigger = (await manager.post("/savepoints/import", body))["request-id"]
        assert "location" in await manager.operation(f"/savepoints/import/{trigger}")


async def _nothing_incomplete_stays(directory: Path) -> None:
    async with running_job_manager(directory, **SETTINGS):
        await eventually(lambda: not _incomplete(directory))


def _incomplete(directory: Path) -> list[Path]:
    state = directory / "state"
    savepoints = [path for path in state.glob("savepoints/*") if not (path / "_metadata").exists()]
    return [*savepoints, *state.glob("savepoint-intents/*"), *state.glob("tmp/*"), *directory.glob("tmp/*/*")]
