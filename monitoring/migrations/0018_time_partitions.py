"""Checkpoints, their operators and counter samples move into tables that are partitioned by time, row by row.

All in one transaction: who reads meanwhile waits, and after a crash everything is as it was. The disk must hold the
history twice meanwhile. Rows of more than a year ago go into the partition before all others.
"""

from datetime import UTC, datetime, timedelta

import django.db.models.deletion
from django.db import migrations, models

WEEK = timedelta(days=7)
MOST_WEEKS = 53
WEEKS_AHEAD = 2

# Written by the database, whoever changes the row: the number of the transaction that last changed what roll-ups count.
TRIGGER = """
CREATE FUNCTION monitoring_checkpoint_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT'
        OR (OLD.run_id, OLD.status, OLD.is_savepoint, OLD.failure_message, OLD.end_to_end_duration,
            OLD.checkpointed_size, OLD.state_size, OLD.processed_data, OLD.persisted_data, OLD.alignment_max,
            OLD.start_delay_max, OLD.sync_max, OLD.async_max, OLD.num_subtasks, OLD.num_acknowledged_subtasks)
           IS DISTINCT FROM
           (NEW.run_id, NEW.status, NEW.is_savepoint, NEW.failure_message, NEW.end_to_end_duration,
            NEW.checkpointed_size, NEW.state_size, NEW.processed_data, NEW.persisted_data, NEW.alignment_max,
            NEW.start_delay_max, NEW.sync_max, NEW.async_max, NEW.num_subtasks, NEW.num_acknowledged_subtasks)
    THEN
        NEW.changed_in := pg_current_xact_id()::text::bigint;
    ELSE
        NEW.changed_in := OLD.changed_in;  -- whoever saves a row that was read long ago
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoint_changed BEFORE INSERT OR UPDATE ON monitoring_checkpoint
    FOR EACH ROW EXECUTE FUNCTION monitoring_checkpoint_changed();
"""


def partition(apps, schema_editor):
    now = datetime.now(UTC)
    with schema_editor.connection.cursor() as cursor:
        # A constraint that is checked late is checked now: a table with events that wait cannot be altered.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        checkpoints = "SELECT *, pg_current_xact_id()::text::bigint FROM {old}"
        _move(cursor, "monitoring_checkpoint", "triggered_at", checkpoints, now, add="changed_in bigint NOT NULL")
        cursor.execute(TRIGGER)
        operators = (
            "SELECT o.*, c.triggered_at FROM {old} o JOIN monitoring_checkpoint c ON c.id = o.checkpoint_id"
        )
        _move(
            cursor,
            "monitoring_operatorcheckpoint",
            "triggered_at",
            operators,
            now,
            add="triggered_at timestamptz NOT NULL",
            bounds_of=("monitoring_checkpoint", "triggered_at"),
        )
        _move(cursor, "monitoring_countersample", "at", "SELECT * FROM {old}", now)
        cursor.execute(CONSTRAINTS)


# The keys of rows that Django knows by (id) alone hold within a time, which the primary key has to name.
CONSTRAINTS = """
ALTER TABLE monitoring_checkpoint
    ADD CONSTRAINT checkpoint_id_is_unique_per_run UNIQUE (run_id, checkpoint_id, triggered_at),
    ADD CONSTRAINT monitoring_checkpoint_run_id_fk FOREIGN KEY (run_id) REFERENCES monitoring_run (id)
        DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE monitoring_operatorcheckpoint
    ADD CONSTRAINT one_row_per_checkpoint_and_operator UNIQUE (checkpoint_id, vertex_id, triggered_at);
ALTER TABLE monitoring_countersample
    ADD CONSTRAINT one_counter_sample_per_run_and_moment UNIQUE (run_id, at),
    ADD CONSTRAINT monitoring_countersample_run_id_fk FOREIGN KEY (run_id) REFERENCES monitoring_run (id)
        DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX checkpoints_by_change ON monitoring_checkpoint (changed_in);
"""


def join(apps, schema_editor):
    """The way back: plain tables, and the constraints that they can hold."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table, added in (
            ("monitoring_checkpoint", "changed_in"),
            ("monitoring_operatorcheckpoint", "triggered_at"),
            ("monitoring_countersample", None),
        ):
            _join(cursor, table, added)
        cursor.execute("DROP FUNCTION monitoring_checkpoint_changed()")
        cursor.execute(PLAIN_CONSTRAINTS)


def _join(cursor, table, added):
    parts = f"{table}_partitioned"
    indexes = [each for each in _indexes(cursor, table) if "(changed_in)" not in each]
    cursor.execute(f"ALTER TABLE {table} RENAME TO {parts}")
    cursor.execute(
        f"CREATE TABLE {table} (LIKE {parts} INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING CONSTRAINTS"
        f" INCLUDING STORAGE)"
    )
    cursor.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {parts}")
    if added:
        cursor.execute(f"ALTER TABLE {table} DROP COLUMN {added}")
    _go_on_counting(cursor, table)
    cursor.execute(f"DROP TABLE {parts} CASCADE")
    cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (id)")
    for definition in indexes:
        cursor.execute(definition.replace(" ON ONLY ", " ON "))


PLAIN_CONSTRAINTS = """
ALTER TABLE monitoring_checkpoint
    ADD CONSTRAINT checkpoint_id_is_unique_per_run UNIQUE (run_id, checkpoint_id),
    ADD CONSTRAINT monitoring_checkpoint_run_id_fk FOREIGN KEY (run_id) REFERENCES monitoring_run (id)
        DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE monitoring_operatorcheckpoint
    ADD CONSTRAINT one_row_per_checkpoint_and_operator UNIQUE (checkpoint_id, vertex_id),
    ADD CONSTRAINT monitoring_operatorcheckpoint_checkpoint_id_fk FOREIGN KEY (checkpoint_id)
        REFERENCES monitoring_checkpoint (id) DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX monitoring_operatorcheckpoint_checkpoint_id ON monitoring_operatorcheckpoint (checkpoint_id);
ALTER TABLE monitoring_savepoint
    ADD CONSTRAINT monitoring_savepoint_checkpoint_id_fk FOREIGN KEY (checkpoint_id)
        REFERENCES monitoring_checkpoint (id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE monitoring_countersample
    ADD CONSTRAINT one_counter_sample_per_run_and_moment UNIQUE (run_id, at),
    ADD CONSTRAINT monitoring_countersample_run_id_fk FOREIGN KEY (run_id) REFERENCES monitoring_run (id)
        DEFERRABLE INITIALLY DEFERRED;
"""


def _move(cursor, table, key, rows, now, add="", bounds_of=None):
    old = f"{table}_unpartitioned"
    begin = _first_week(cursor, *(bounds_of or (table, key)), now)
    indexes = [definition for definition in _indexes(cursor, table) if "(checkpoint_id)" not in definition]
    cursor.execute(f"ALTER TABLE {table} RENAME TO {old}")
    cursor.execute(
        f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING CONSTRAINTS"
        f" INCLUDING STORAGE{f', {add}' if add else ''}) PARTITION BY RANGE ({key})"
    )
    for name, start, end in _partitions(table, begin, now):
        cursor.execute(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({start}) TO ({end})")
    cursor.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE {rows.format(old=old)}")
    _go_on_counting(cursor, table)
    cursor.execute(f"DROP TABLE {old} CASCADE")  # with it go the constraints of what referred to it
    cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (id, {key})")
    for definition in indexes:
        cursor.execute(definition)


def _indexes(cursor, table):
    """How those are made that are no constraint's."""
    cursor.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s AND NOT EXISTS ("
        " SELECT FROM pg_constraint WHERE conname = indexname AND conrelid = to_regclass(%s))",
        [table, table],
    )
    return [definition for (definition,) in cursor.fetchall()]


def _go_on_counting(cursor, table):
    cursor.execute(f"SELECT max(id) FROM {table}")
    newest = cursor.fetchone()[0]
    if newest is not None:
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [table, newest])


def _first_week(cursor, table, key, now):
    cursor.execute(f"SELECT min({key}) FROM {table} WHERE {key} > %s", [now - MOST_WEEKS * WEEK])
    oldest = cursor.fetchone()[0]
    return _monday(min(oldest or now, now))


def _partitions(table, begin, now):
    end = _monday(now) + (1 + WEEKS_AHEAD) * WEEK
    yield f"{table}_before", "MINVALUE", f"'{begin.isoformat()}'"
    while begin < end:
        yield f"{table}_{begin:%Y%m%d}", f"'{begin.isoformat()}'", f"'{(begin + WEEK).isoformat()}'"
        begin += WEEK
    yield f"{table}_after", f"'{end.isoformat()}'", "MAXVALUE"


def _monday(moment):
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0017_programs_kept")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(partition, join)],
            state_operations=[
                migrations.AddField(
                    model_name="checkpoint",
                    name="changed_in",
                    field=models.BigIntegerField(default=0, editable=False),
                ),
                migrations.AddField(
                    model_name="operatorcheckpoint",
                    name="triggered_at",
                    field=models.DateTimeField(),
                    preserve_default=False,
                ),
                migrations.AlterField(
                    model_name="operatorcheckpoint",
                    name="checkpoint",
                    field=models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operators",
                        to="monitoring.checkpoint",
                    ),
                ),
                migrations.AlterField(
                    model_name="savepoint",
                    name="checkpoint",
                    field=models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="monitoring.checkpoint",
                    ),
                ),
                migrations.RemoveConstraint(model_name="checkpoint", name="checkpoint_id_is_unique_per_run"),
                migrations.RemoveConstraint(
                    model_name="operatorcheckpoint", name="one_row_per_checkpoint_and_operator"
                ),
                migrations.AddConstraint(
                    model_name="checkpoint",
                    constraint=models.UniqueConstraint(
                        fields=("run", "checkpoint_id", "triggered_at"), name="checkpoint_id_is_unique_per_run"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="operatorcheckpoint",
                    constraint=models.UniqueConstraint(
                        fields=("checkpoint", "vertex_id", "triggered_at"), name="one_row_per_checkpoint_and_operator"
                    ),
                ),
                migrations.AddIndex(
                    model_name="checkpoint",
                    index=models.Index(fields=["changed_in"], name="checkpoints_by_change"),
                ),
            ],
        )
    ]
