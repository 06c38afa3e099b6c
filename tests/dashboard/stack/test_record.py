from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.stack.record import (
    AlreadyRunning,
    PartRecord,
    StackRecord,
    adopt_environment,
    start_time,
    store_environment,
    write_private,
)

_HOLDER = """
import sys, signal
from pathlib import Path
from dashboard.stack.record import StackRecord
with StackRecord(Path(sys.argv[1])).acquire_lock():
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def record(tmp_path: Path) -> StackRecord:
    return StackRecord(tmp_path / "run")


def hold_elsewhere(record: StackRecord) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(record.directory)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_second_lock_is_refused_with_the_holders_pid(record: StackRecord) -> None:
    holder = hold_elsewhere(record)
    try:
        with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}"), record.acquire_lock():
            pass
        assert record.supervisor_pid() == holder.pid
    finally:
        end(holder)


def test_the_lock_of_a_killed_holder_is_free(record: StackRecord) -> None:
    end(hold_elsewhere(record))
    assert record.supervisor_pid() is None
    with record.acquire_lock():
        pass


def test_parts_of_a_stopped_stack_are_down_except_external_ones(record: StackRecord) -> None:
    with record.acquire_lock():
        record.write(
            [PartRecord("web", "up", "http://here", pid=os.getpid()), PartRecord("mail", "external", "smtp://x")]
        )
    assert [(part.name, part.state, part.pid) for part in record.read()] == [
        ("web", "down", None),
        ("mail", "external", None),
    ]


def test_a_part_whose_pid_now_belongs_to_another_process_is_down(record: StackRecord) -> None:
    started = start_time(os.getpid())
    assert started is not None
    with record.acquire_lock():
        record.write([PartRecord("web", "up", pid=os.getpid(), pid_started=started - 1)])
        assert record.read()[0].state == "down"
        record.write([PartRecord("web", "up", pid=os.getpid(), pid_started=started)])
        assert record.read()[0].state == "up"


def test_leftover_processes_are_awaited_then_killed(record: StackRecord) -> None:
    left = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
    record.directory.mkdir()
    record.write([PartRecord("web", "up", pid=left.pid, pid_started=start_time(left.pid))])
    text: list[str] = []
    record.end_leftovers(text.append, limit_s=0.2)
    assert left.wait(10) == -signal.SIGKILL
    assert text == ["waiting for web of an earlier run to end", f"killing web of an earlier run (pid {left.pid})"]


def test_commands_adopt_variables_of_the_running_stack_unless_set(record: StackRecord) -> None:
    with record.acquire_lock():
        store_environment(record.directory, {"DATABASE_URL": "postgresql://here", "REDIS_URL": "redis://here"})
        environ = {"REDIS_URL": "redis://mine"}
        adopt_environment(environ, record.directory)
    assert environ == {"DATABASE_URL": "postgresql://here", "REDIS_URL": "redis://mine"}


def test_variables_of_a_stopped_stack_are_not_adopted(record: StackRecord) -> None:
    with record.acquire_lock():
        store_environment(record.directory, {"DATABASE_URL": "postgresql://here"})
    environ: dict[str, str] = {}
    adopt_environment(environ, record.directory)
    assert environ == {}


def test_a_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", "x")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
