"""Which archive of Spark's classes drivers get. The processes are real, but a stand-in writes the archive."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from checkpointing.jobs.launching.class_archive import ClassArchives
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
MAKER = """
import sys, time
from pathlib import Path
from checkpointing.jobs.launching.class_archive import publish
archive = Path(sys.argv[1])
made = archive.with_name("made")
made.write_text(made.read_text() + "." if made.exists() else ".")
if archive.with_name("slow").exists():
    time.sleep(600)
if archive.with_name("fails").exists():
    sys.exit("no memory")
written = archive.with_name("written")
written.write_bytes(b"classes" * 1000)
publish(written, archive)
"""


@pytest.fixture
def java(tmp_path: Path) -> Path:
    server = tmp_path / "java" / "lib" / "server"
    server.mkdir(parents=True)
    (server / "classes.jsa").touch()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"')
    return tmp_path / "java"


@pytest.fixture
def job_manager(tmp_path: Path) -> Iterator[Callable[[], ClassArchives]]:
    """Yield a function that creates the archives of a new job manager, all with the same directory."""
    (tmp_path / "maker.py").write_text(MAKER)
    (tmp_path / "classes").mkdir()
    begun: list[ClassArchives] = []

    def begin() -> ClassArchives:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(tmp_path / "maker.py")]
        temporaries = TemporaryDirectories(tmp_path / "state")
        begun.append(ClassArchives(tmp_path / "classes", command, lambda: environment, temporaries))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


@pytest.fixture
def archive(java: Path, job_manager: Callable[[], ClassArchives]) -> Path:
    """Return a finished archive."""
    archives = job_manager()
    assert archives.of(java) is None
    found = eventually("it was made", lambda: archives.of(java))
    assert found is not None
    return found


def times_made(tmp_path: Path) -> int:
    made = tmp_path / "classes" / "made"
    return len(made.read_text()) if made.exists() else 0


def test_the_first_request_creates_the_archive_and_later_ones_reuse_it(
    archive: Path, java: Path, job_manager: Callable[[], ClassArchives], tmp_path: Path
) -> None:
    assert archive.read_bytes() == b"classes" * 1000
    assert job_manager().of(java) == archive
    assert times_made(tmp_path) == 1


@pytest.mark.parametrize("damage", ["cut short", "changed", "not told"])
def test_changed_archive_is_not_used_and_is_rebuilt(
    archive: Path, java: Path, job_manager: Callable[[], ClassArchives], damage: str, tmp_path: Path
) -> None:
    match damage:
        case "cut short":
            os.truncate(archive, 100)
        case "changed":
            archive.write_bytes(b"Classes" * 1000)
        case "not told":
            archive.with_suffix(".sha256").unlink()
    archives = job_manager()
    assert archives.of(java) is None
    eventually("it was created again", lambda: archives.of(java) == archive)
    assert archive.read_bytes() == b"classes" * 1000
    assert times_made(tmp_path) == 2


def test_damage_is_noticed_while_a_job_manager_runs(java: Path, job_manager: Callable[[], ClassArchives]) -> None:
    archives = job_manager()
    archives.of(java)
    archive = eventually("it was made", lambda: archives.of(java))
    assert archive is not None
    os.truncate(archive, 100)
    assert archives.of(java) is None
    eventually("it was created again", lambda: archives.of(java))


def test_failing_archive_is_tried_once_per_job_manager(
    java: Path, job_manager: Callable[[], ClassArchives], tmp_path: Path, caplog
) -> None:
    (tmp_path / "classes" / "fails").touch()
    archives = job_manager()
    assert archives.of(java) is None
    eventually("it has failed", lambda: "no class archive was made (1)" in caplog.text)
    [log] = (tmp_path / "classes").glob("*.log")
    assert str(log) in caplog.text
    assert "no memory" in log.read_text()
    assert archives.of(java) is None
    assert times_made(tmp_path) == 1


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a process of another test has ended
        return ""


def test_the_creation_ends_with_the_job_manager_and_the_next_one_restarts_it(
    java: Path, job_manager: Callable[[], ClassArchives], tmp_path: Path
) -> None:
    slow = tmp_path / "classes" / "slow"
    slow.touch()
    archives = job_manager()
    archives.of(java)
    eventually("it is being made", lambda: times_made(tmp_path) == 1)
    [maker] = [child for child in psutil.Process().children() if "maker.py" in command_line(child)]
    archives.close()
    assert not maker.is_running()
    slow.unlink()
    assert archives.of(java) is None
    eventually("it was made", lambda: archives.of(java))


def test_a_java_without_a_default_archive_creates_none(
    java: Path, job_manager: Callable[[], ClassArchives], tmp_path: Path
) -> None:
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert job_manager().of(java) is None
    assert not list((tmp_path / "classes").iterdir())


def test_each_java_has_an_archive_and_those_unused_for_a_week_are_removed(
    archive: Path, java: Path, job_manager: Callable[[], ClassArchives], tmp_path: Path
) -> None:
    used = archive.with_name("used.jsa")
    used.write_text("another Java's")
    before = time.time() - 8 * 86_400
    for path in (archive, archive.with_suffix(".used"), used):
        os.utime(path, (before, before))
    used.with_suffix(".used").touch()
    (java / "release").write_text('JAVA_VERSION="21"')
    archives = job_manager()
    archives.of(java)
    eventually("it was made", lambda: archives.of(java))
    assert archives.of(java) != archive
    assert not list(archive.parent.glob(f"{archive.stem}.*"))
    assert used.exists()
