"""An archive of Spark's classes, written by a real session. Drivers' JVMs use it, or start without it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from checkpointing.jobs.launching.class_archive import VARIABLE
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
MAKER = [sys.executable, "-m", "checkpointing.spark.class_archive"]
SESSION = """
import sys
from pathlib import Path
from checkpointing.spark import jvm
from checkpointing.jobs.launching.session_settings import JVM_OPTIONS, WorkDirectory, session_settings
from checkpointing.spark.session import start_session
work = WorkDirectory(Path(sys.argv[1]))
options = f"-Xlog:class+load:file={work.root}/loaded"
start_session("session", session_settings(work, 1, {JVM_OPTIONS: options}), work)
print("started", flush=True)
jvm.kill()
"""


def environment(**own: str) -> dict[str, str]:
    """Return the environment without the class archive of the test run."""
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    return {**inherited, "PYTHONPATH": str(ROOT), **own}


@pytest.fixture(scope="module")
def archive(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the test run's archive, or a new one from the same program."""
    path = tmp_path_factory.mktemp("classes") / "a.jsa"
    made = Path(os.environ["WAYMARK_TEST_CLASS_ARCHIVE"])
    if not made.exists():
        with subprocess.Popen([*MAKER, str(path)], env=environment(), stdin=subprocess.PIPE) as maker:
            assert maker.wait(500) == 0
        return path
    shutil.copy(made, path)
    return path


def test_drivers_take_their_classes_from_it_and_start_without_when_it_is_damaged(archive: Path, tmp_path: Path) -> None:
    text, loaded = session(tmp_path / "whole", archive)
    assert "started" in text.splitlines()
    shared = len(re.findall(r"source: shared objects file \(top\)$", loaded, re.MULTILINE))
    assert shared > 0.8 * len(re.findall(r"source: ", loaded)) / 2
    assert shared > 2_000

    archive.chmod(0o600)
    os.truncate(archive, archive.stat().st_size // 2)
    text, loaded = session(tmp_path / "damaged", archive)
    assert "started" in text.splitlines()
    assert "Java crashed with the class archive" in text
    assert not archive.exists()
    assert "shared objects file (top)" not in loaded


def session(directory: Path, archive: Path) -> tuple[str, str]:
    """Start a Spark session with the archive. Return its output, and the log of the classes that it loaded."""
    directory.mkdir()
    text = directory / "said"
    with text.open("wb") as file:
        subprocess.run(
            [sys.executable, "-c", SESSION, str(directory)],
            env=environment(**{VARIABLE: str(archive)}),
            cwd=directory,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=300,
        )
    return text.read_text(), (directory / "loaded").read_text()


def test_the_creation_ends_with_the_process_that_began_it(java_home: Path, tmp_path: Path) -> None:
    command = [*MAKER, str(tmp_path / "a.jsa")]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, start_new_session=True) as maker:
        assert maker.stdin is not None
        try:
            eventually("Java runs", lambda: "java" in group(maker.pid))
            assert os.getpriority(os.PRIO_PROCESS, maker.pid) == 19
            share = Path(f"/proc/{maker.pid}/autogroup")
            assert not share.exists() or share.read_text().endswith("nice 19\n")
        finally:
            maker.stdin.close()
        eventually("all have ended", lambda: not group(maker.pid))
    assert not (tmp_path / "a.jsa").exists()


def group(leader: int) -> set[str]:
    """Return the names of the running processes of a process group."""
    found = set()
    for process in psutil.process_iter(["name", "status"]):
        with contextlib.suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == leader:
                found.add(process.info["name"])
    return found
