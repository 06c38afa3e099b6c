"""PostgreSQL for the tests, and a data directory with a migrated database that a run makes once.

Each xdist worker runs its own server on a copy of that directory, so a worker that is killed takes no other's server
down.
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

# The database in the copy that no test connects to: PostgreSQL clones only a database without connections.
MIGRATED = "migrated"
_ROOT = Path(__file__).parents[1]
# A crash of the machine may cost the data.
_CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def running_server(home: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(home, settings=_CARELESS)
    with running(server, log=home.with_suffix(".log")):
        yield server


def copy_migrated(run: Path, home: Path) -> None:
    """Copy the server's directory with the database MIGRATED to `home`; the first process of a run makes it."""
    original = run / "migrated"
    with (run / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            _make(run).rename(original)
    subprocess.run(["cp", "--archive", original, home], check=True)  # the files belong to the server's user


def _make(run: Path) -> Path:
    """Return a complete directory; one that a killed process left unfinished has another name."""
    home = Path(tempfile.mkdtemp(prefix="pg-", dir=run))
    with running_server(home) as server:
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {MIGRATED}")
        environ = {**os.environ, "DATABASE_URL": server.dsn(MIGRATED)}
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=_ROOT, env=environ, check=True)
    return home
