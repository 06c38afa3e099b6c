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
from typing import Any

import psycopg
from django.core.management.base import BaseCommand
from django.db import connections, transaction

from dashboard.stack.postgres import PostgresServer
from dashboard.stack.process import running

# The database that tests clone. No test connects to it, because PostgreSQL cannot clone a database with connections.
MIGRATED = "migrated"
# Django fills these tables after it created all others, and no test changes them.
_FILLED = ("django_content_type", "auth_permission")
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


class EmptyTables(BaseCommand):
    """Replaces Django's command `flush`, which runs after each test that is marked with `transaction=True`.

    Django truncates all tables, which takes a new file for each table and index, and then fills _FILLED again. To
    delete the few rows of a test is faster.
    """

    stealth_options = ("interactive", "reset_sequences", "allow_cascade", "inhibit_post_migrate", "database")

    def handle(self, *_: str, **options: Any) -> None:
        connection = connections[options["database"]]
        tables = set(connection.introspection.django_table_names()) - set(_FILLED)
        deletions = ";".join(f"DELETE FROM {connection.ops.quote_name(each)}" for each in sorted(tables))
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            # Without triggers and foreign keys, the order of the tables does not matter.
            cursor.execute(f"SET LOCAL session_replication_role = replica;{deletions}")
