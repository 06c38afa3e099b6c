"""PostgreSQL for the tests. A run creates a data directory with a migrated database once.

Each xdist worker runs a server on a copy of this directory, so a killed worker does not stop the server of another one.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from dashboard.stack.postgres import PostgresServer
from dashboard.stack.process import running

# The database that tests clone. No test connects to it, because PostgreSQL cannot clone a database with connections.
MIGRATED = "migrated"
_ROOT = Path(__file__).parents[1]
# Faster settings, with which a crash of the machine may lose data.
_CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def running_server(home: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(home, settings=_CARELESS)
    with running(server, log=home.with_suffix(".log")):
        yield server


def copy_migrated(run: Path, home: Path) -> None:
    """Copy the data directory with the database MIGRATED to `home`. The first process of a run creates it."""
    original = run / "migrated"
    with (run / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            _make(run).rename(original)
    subprocess.run(["cp", "--archive", original, home], check=True)  # the files belong to the server's user


def _make(run: Path) -> Path:
    """Create a data directory under a temporary name, so that a killed process leaves no incomplete MIGRATED."""
    home = Path(tempfile.mkdtemp(prefix="pg-", dir=run))
    with running_server(home) as server:
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {MIGRATED}")
        environ = {**os.environ, "DATABASE_URL": server.dsn(MIGRATED)}
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=_ROOT, env=environ, check=True)
    return home
