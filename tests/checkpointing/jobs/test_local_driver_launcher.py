"""The launcher of local drivers with real processes, and with a stand-in for the driver's module."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.launcher import DriverProcess, LaunchFailed
from checkpointing.jobs.launching import temporary
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import JobEnvironment
from tests.checkpointing.jobs.running_job_manager import eventually

STAND_IN = """
import json, os, signal, subprocess, sys, tempfile, time
spec = json.load(open(sys.argv[1]))
print("java", os.environ["JAVA_HOME"], "secret", os.environ.get("WAYMARK_JOBMANAGER_TOKEN"), flush=True)
tempfile.mkdtemp()
print("tmp", tempfile.gettempdir(), flush=True)
match spec["entry_class"]:
    case "exit": sys.exit(7)
    case "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    case "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("child", child.pid, flush=True)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> LocalDriverLauncher:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "WAYMARK_JOBMANAGER_TOKEN": "hidden"}
    return LocalDriverLauncher(environ, lambda: Path("/opt/java"), tmp_path, module="stand_in")


def spec(tmp_path: Path, entry_class: str) -> DriverSpec:
    return DriverSpec(
        "0" * 32, "job", 1, "p.py", entry_class, (), None, {}, str(tmp_path / "work"), "t", "http://x", 20.0
    )


async def ready(process: DriverProcess) -> str:
    return str(await eventually(lambda: process.last_log_lines() if "ready" in process.last_log_lines() else ""))


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def test_a_driver_runs_in_a_new_session_with_its_environment_and_log(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    process = launcher.launch(spec(tmp_path, "run"))
    log = await ready(process)

    assert os.getsid(process.pid) == process.pid
    assert "java /opt/java secret None" in log
    await process.end(5.0)
    assert await process.wait() == -signal.SIGTERM


async def test_the_exit_code_is_seen(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    assert await launcher.launch(spec(tmp_path, "exit")).wait() == 7


async def test_a_driver_that_ignores_the_request_is_killed(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    process = launcher.launch(spec(tmp_path, "stubborn"))
    await ready(process)

    await process.end(0.2)

    assert await process.wait() == -signal.SIGKILL


async def test_processes_started_by_a_driver_end_with_it(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    process = launcher.launch(spec(tmp_path, "child"))
    log = await ready(process)
    child = int(log.split("child ")[1].split()[0])

    os.kill(process.pid, signal.SIGKILL)
    await process.wait()

    await eventually(lambda: not is_alive(child))


async def test_a_driver_has_ended_once_all_processes_of_it_have_ended(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    process = launcher.launch(spec(tmp_path, "child"))
    child = int((await ready(process)).split("child ")[1].split()[0])
    assert not process.left_nothing

    await process.end(5.0)

    assert process.left_nothing
    assert not is_alive(child)


async def test_a_running_driver_can_be_adopted_and_ended(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    started = launcher.launch(spec(tmp_path, "run"))
    await ready(started)

    adopted = launcher.adopt(started.pid, "0" * 32, 1, tmp_path / "work")
    assert adopted is not None
    await asyncio.gather(adopted.end(5.0), started.wait())

    assert launcher.adopt(started.pid, "0" * 32, 1, tmp_path / "work") is None


async def test_a_foreign_process_is_never_adopted(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    assert launcher.adopt(os.getpid(), "0" * 32, 1, tmp_path / "work") is None


async def test_without_a_java_nothing_is_launched(tmp_path: Path) -> None:
    def no_java() -> Path:
        raise LaunchFailed("There is no Java.")

    with pytest.raises(LaunchFailed, match="no Java"):
        LocalDriverLauncher(os.environ, no_java, tmp_path).launch(spec(tmp_path, "run"))


def temporary_directory(log: str) -> Path:
    return Path(log.split("tmp ")[1].split()[0])


async def test_a_driver_has_a_temporary_directory_that_ends_with_it(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    process = launcher.launch(spec(tmp_path, "run"))
    directory = temporary_directory(await ready(process))
    launcher.temporaries.sweep()
    assert len(list(directory.glob("tmp*"))) == 1, "in use"

    os.kill(process.pid, signal.SIGKILL)
    await process.wait()

    await eventually(lambda: not directory.exists())


async def test_processes_of_an_ended_driver_keep_its_temporary_directory(launcher: LocalDriverLauncher) -> None:
    with launcher.temporaries.new() as temporary:
        environ = {**os.environ, "TMPDIR": str(temporary.path)}
        started = await asyncio.create_subprocess_exec("sleep", "600", env=environ)
    launcher.temporaries.sweep()
    assert temporary.path.exists()

    started.kill()
    await started.wait()

    await eventually(lambda: not temporary.path.exists())


async def test_a_driver_that_survives_its_job_manager_keeps_its_temporary_directory(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    process = launcher.launch(spec(tmp_path, "run"))
    directory = temporary_directory(await ready(process))

    next_one = LocalDriverLauncher({}, lambda: Path("/opt/java"), tmp_path, module="stand_in")
    next_one.temporaries.sweep()
    assert directory.exists()
    await process.end(5.0)

    await eventually(lambda: not directory.exists())


async def test_job_manager_start_removes_directories_of_ended_drivers(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    with launcher.temporaries.new() as left:
        (left.path / "librocksdbjni.so").write_text("x")
        other = left.path.parent / "somebody else's"
        other.mkdir()

    LocalDriverLauncher({}, lambda: Path("/opt/java"), tmp_path)

    await eventually(lambda: not left.path.exists())
    assert other.exists()
    other.rmdir()


async def test_failed_removal_of_a_temporary_directory_is_retried(
    launcher: LocalDriverLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Path] = []
    remove = shutil.rmtree

    def refuse(path: Path, **how: object) -> None:
        if not refused:
            refused.append(path)
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        remove(path)

    monkeypatch.setattr(temporary.shutil, "rmtree", refuse)
    with launcher.temporaries.new() as left:
        (left.path / "busy").mkdir()

    await eventually(lambda: not left.path.exists())
    assert refused == [left.path / "busy"]


async def test_a_driver_that_cannot_be_started_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = LocalDriverLauncher({}, lambda: Path("/opt/java"), tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no python"))

    with pytest.raises(LaunchFailed, match="no python"):
        launcher.launch(spec(tmp_path, "run"))

    assert list(launcher.temporaries.parent.glob("*")) == []


async def test_a_job_may_set_its_temporary_directory(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    asked = replace(spec(tmp_path, "run"), environment=JobEnvironment({"TMPDIR": str(own)}))

    process = launcher.launch(asked)

    assert temporary_directory(await ready(process)) == own
    await process.end(5.0)
    assert own.exists()


def test_a_path_too_long_for_sockets_is_replaced_by_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deep = tmp_path / ("d" * 100)
    assert TemporaryDirectories(Path("/srv/waymark/jobmanager")).parent == Path("/srv/waymark/jobmanager/tmp")

    found = TemporaryDirectories(deep)

    assert found.parent.parent == tmp_path
    with found.new() as made:
        assert made.path.parent == found.parent
        assert found.parent.stat().st_mode & 0o777 == 0o700
    assert TemporaryDirectories(deep).parent == found.parent
    assert TemporaryDirectories(tmp_path / ("e" * 100)).parent != found.parent


def test_a_shared_state_directory_contains_no_temporary_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that one machine takes on a shared file system may be invisible to another machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    state = Path("/srv/waymark/jobmanager")

    assert TemporaryDirectories(state, is_shared=True).parent.parent == tmp_path
    monkeypatch.setattr(temporary, "filesystem_of", lambda path: "nfs4")
    assert TemporaryDirectories(state).parent.parent == tmp_path


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/vda / ext4 rw 0 0\nnas:/x /srv nfs4 rw 0 0\n/dev/b /srv/my\\040disk xfs rw 0 0\n")

    assert temporary.filesystem_of(Path("/var/lib"), mounts) == "ext4"
    assert temporary.filesystem_of(Path("/srv/waymark/state"), mounts) == "nfs4"
    assert temporary.filesystem_of(Path("/srv/my disk/state"), mounts) == "xfs"
    assert temporary.filesystem_of(Path("/srvx"), mounts) == "ext4"


def test_a_foreign_directory_at_the_path_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deep = tmp_path / ("d" * 100)
    theirs = TemporaryDirectories(deep).parent
    theirs.symlink_to("/etc")

    assert TemporaryDirectories(deep).parent == deep / "tmp"
