"""The database of the tests is equal to an empty database after all migrations."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from tests import database

INITIAL = ("monitoring", "0001_initial_0_2")


@pytest.mark.django_db
def test_the_database_has_every_migration_and_every_model_has_its_migration() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.fixture
def replaced(db: None) -> list[tuple[str, str]]:
    """Return the migrations that the initial one replaces. Mark all of them, and the initial one, as not applied."""
    replaced = import_module("monitoring.migrations.0001_initial_0_2").Migration.replaces
    for key in (INITIAL, *replaced):
        MigrationRecorder(connection).record_unapplied(*key)
    return list(replaced)


def test_a_database_with_all_replaced_migrations_is_up_to_date(replaced: list[tuple[str, str]]) -> None:
    for key in replaced:
        MigrationRecorder(connection).record_applied(*key)
    tables = set(connection.introspection.table_names())
    call_command("migrate", verbosity=0)
    assert INITIAL in MigrationRecorder(connection).applied_migrations()
    assert set(connection.introspection.table_names()) == tables


def test_a_database_in_between_is_refused_and_not_changed(replaced: list[tuple[str, str]]) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="monitoring").delete()
    for key in replaced[:-1]:
        MigrationRecorder(connection).record_applied(*key)
    before = set(MigrationRecorder(connection).applied_migrations())
    with pytest.raises(CommandError, match="newest migration is 0044_runs_that_wait_to_start"):
        call_command("migrate", verbosity=0)
    assert set(MigrationRecorder(connection).applied_migrations()) == before


@pytest.mark.django_db
def test_another_copy_of_the_same_original_is_migrated(session_directory: Path) -> None:
    run, home = Path(os.environ["WAYMARK_TEST_RUN"]), session_directory / "second-pg"
    database.copy_migrated(run, session_directory / "first-pg")
    original = (run / "migrated").stat().st_ino
    database.copy_migrated(run, home)
    assert (run / "migrated").stat().st_ino == original
    with database.running_server(home) as server, psycopg.connect(server.dsn(database.MIGRATED)) as copy:
        applied = copy.execute("SELECT app, name FROM django_migrations").fetchall()
    assert set(applied) == set(MigrationExecutor(connection).loader.applied_migrations)
