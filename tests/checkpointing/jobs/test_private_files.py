# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Only the job manager's account can read the files that it writes."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointing.durable_files import append_privately, make_directory, restrict_access, write_durably
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import eventually, running_job_manager

SECRETS = {"spark.hadoop.fs.s3a.secret.key": "abc123"}
NOBODY = 65_534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Clear the umask, so that the modes of files are those that the job manager sets."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_durable_file_and_the_directories_created_for_it_are_private(tmp_path: Path, no_umask: None) -> None:
    write_durably(tmp_path / "a" / "b" / "file.json", "{}")
    with append_privately(tmp_path / "a" / "log") as log:
        log.write(b"line")

    assert {mode(tmp_path / "a"), mode(tmp_path / "a" / "b")} == {0o700}
    assert {mode(tmp_path / "a" / "b" / "file.json"), mode(tmp_path / "a" / "log")} == {0o600}


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o777, 0o770), (0o2775, 0o2770), (0o700, 0o700)])
def test_a_directory_is_closed_to_others_and_to_a_group_that_may_not_write(
    tmp_path: Path, before: int, after: int
) -> None:
    directory = tmp_path / "state"
    make_directory(directory)
    directory.chmod(before)
    restrict_access(directory)
    assert mode(directory) == after


@pytest.mark.zookeeper
async def test_job_settings_records_programs_and_results_are_private(cluster: Cluster, no_umask: None) -> None:
    async with cluster.job_manager() as manager:
        await leads(manager)
        running = await manager.submit_running(SECRETS)
        ended = await manager.submit_running(SECRETS)
        await manager.cancel(ended)
        await manager.until(ended, "CANCELED")
        state = manager.settings.state_directory
        # Wait for the clean-up, which removes files that are checked below.
        await eventually(lambda: (state / "ha" / "job-result-store" / f"{ended}.json").exists())

        found = await asyncio.to_thread(lambda: [*state.rglob("*")])
        # A hidden file is still being written; it gets its final name afterwards.
        files = [path for path in found if path.is_file() and not path.name.startswith(".")]
        secret = [path for path in files if b"abc123" in path.read_bytes()]
        assert {path.parent.name for path in secret} >= {"execution-plans", ended}
        for path in [*secret, *state.glob("programs/*"), *state.rglob("attempt.json"), *state.glob("ha/**/*.json")]:
            assert (path, mode(path)) == (path, 0o600)
        directories = {state, state / "jobs", state / "jobs" / running, state / "programs", state / "ha"}
        assert {mode(path) for path in directories} == {0o700}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
async def test_another_account_reads_nothing_of_an_older_versions_open_directory() -> None:
    """Check with another account, independent of the files' modes."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        (directory / "state" / "programs").mkdir(parents=True)
        (directory / "state" / "programs" / "left.py").write_text("SECRET = 1")
        (directory / "state").chmod(0o755)
        assert await asyncio.to_thread(_listed_by_other_account, directory)
        async with running_job_manager(directory) as manager:
            await manager.submit_running(SECRETS)
            assert await asyncio.to_thread(_listed_by_other_account, directory) == ""
    finally:
        shutil.rmtree(directory)


def _listed_by_other_account(directory: Path) -> str:
    """Return the paths below the state directory that the account `nobody` can list."""
    find = ["find", str(directory / "state"), "-mindepth", "1"]
    return subprocess.run(find, user=NOBODY, group=NOBODY, capture_output=True, text=True, check=False).stdout
