"""An installation from before the history had partitions keeps every row, figure and reference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("monitoring", "0017_programs_kept")]
AFTER = [("monitoring", "0018_time_partitions")]
NOW = datetime.now(UTC)
AGES = (timedelta(days=3000), timedelta(days=200), timedelta(days=9), timedelta(0), timedelta(days=-900))


@pytest.fixture
def migrate(transactional_db):
    def to(target):
        MigrationExecutor(connection).migrate(target)
        return MigrationExecutor(connection).loader.project_state(target).apps

    yield to
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


def dump(table, columns):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} ORDER BY id")
        return cursor.fetchall()


def columns_of(table):
    with connection.cursor() as cursor:
        return ", ".join(f'"{column.name}"' for column in connection.introspection.get_table_description(cursor, table))


@pytest.mark.nightly
def test_every_row_is_carried_over(migrate):
    old = migrate(BEFORE)
    models = {
        name: old.get_model("monitoring", name).objects
        for name in ("Cluster", "Job", "Run", "Checkpoint", "OperatorCheckpoint", "CounterSample", "Savepoint")
    }
    job = models["Job"].create(cluster=models["Cluster"].create(name="c", rest_url="http://127.0.0.1:1/"), name="f")
    run = models["Run"].create(
        job=job, number=1, engine_job_id="a" * 32, state="RUNNING", observed_at=NOW, started_at=NOW
    )
    for number, age in enumerate(AGES, 1):
        at = NOW - age
        checkpoint = models["Checkpoint"].create(
            run=run, checkpoint_id=number, status="COMPLETED", triggered_at=at, state_size=number, failure_message="ü"
        )
        models["OperatorCheckpoint"].create(
            checkpoint=checkpoint, vertex_id="v", name="n", num_subtasks=2, num_acknowledged_subtasks=2,
            subtask_sync=[number, None],
        )  # fmt: skip
        models["CounterSample"].create(run=run, at=at, restored=0, total=number, in_progress=0, completed=1, failed=0)
    savepoint = models["Savepoint"].create(job=job, run=run, checkpoint=checkpoint, state="completed", requested_at=NOW)
    tables = {
        table: columns_of(table)
        for table in ("monitoring_checkpoint", "monitoring_operatorcheckpoint", "monitoring_countersample")
    }
    before = {table: dump(table, columns) for table, columns in tables.items()}

    new = migrate(AFTER)

    assert {table: dump(table, columns) for table, columns in tables.items()} == before
    assert new.get_model("monitoring", "Savepoint").objects.get(pk=savepoint.pk).checkpoint_id == checkpoint.pk
    operators = new.get_model("monitoring", "OperatorCheckpoint").objects.select_related("checkpoint")
    assert all(each.triggered_at == each.checkpoint.triggered_at for each in operators)
    following = new.get_model("monitoring", "Checkpoint").objects.create(
        run_id=run.pk, checkpoint_id=99, status="COMPLETED", triggered_at=NOW
    )
    assert following.pk > checkpoint.pk
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'monitoring_checkpoint'")
        names = {name for (name,) in cursor.fetchall()}
    assert {"checkpoints_to_read_again", "savepoints_of_a_run", "failures_by_time", "checkpoints_by_change"} <= names

    migrate(BEFORE)  # who goes back to the version before loses nothing either

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM monitoring_checkpoint WHERE checkpoint_id = 99")
    assert {table: dump(table, columns) for table, columns in tables.items()} == before
