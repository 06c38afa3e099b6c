"""A driver that is killed while its JVM is still starting leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from checkpointing.jobs.launching.temporary import TemporaryDirectories
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
import sys
from pathlib import Path
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.spark.session import start_session
work = WorkDirectory(Path(sys.argv[1]))
start_session("session", session_settings(work, 1, {}), work)
"""


@contextlib.contextmanager
def driver(work: Path, temporaries: TemporaryDirectories) -> Iterator[subprocess.Popen[bytes]]:
    with temporaries.new() as temporary:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(work)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary.path)},
            pass_fds=(temporary.lock,),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for left in group_of(process.pid):
            left.kill()


def group_of(leader: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def gateways(leader: int) -> list[psutil.Process]:
    """Return the JVMs that serve the driver, without the JVM that spark-class runs before."""
    found = []
    for process in group_of(leader):
        with contextlib.suppress(psutil.Error):
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                found.append(process)
    return found


@pytest.mark.usefixtures("java_home")
def test_a_jvm_whose_driver_is_killed_while_it_starts_ends_by_itself(tmp_path: Path) -> None:
    temporaries = TemporaryDirectories(tmp_path)
    with driver(tmp_path / "work", temporaries) as process:
        eventually("the JVM is started", lambda: gateways(process.pid))
        process.kill()
        process.wait()

        eventually("the JVM ends", lambda: not group_of(process.pid), limit_s=90)
        eventually("the directory is removed", lambda: not list(temporaries.parent.glob("*")))
