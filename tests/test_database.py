"""The database of the tests is what the migrations make of an empty one."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests import database


@pytest.mark.django_db
def test_the_database_has_every_migration_and_every_model_has_its_migration() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_another_copy_is_taken_from_the_same_original_and_is_migrated(session_directory: Path) -> None:
    run, home = Path(os.environ["WAYMARK_TEST_RUN"]), session_directory / "second-pg"
    database.copy_migrated(run, session_directory / "first-pg")
    original = (run / "migrated").stat().st_ino
    database.copy_migrated(run, home)
    assert (run / "migrated").stat().st_ino == original
    with database.running_server(home) as server, psycopg.connect(server.dsn(database.MIGRATED)) as copy:
        applied = copy.execute("SELECT app, name FROM django_migrations").fetchall()
    assert set(applied) == set(MigrationExecutor(connection).loader.applied_migrations)
