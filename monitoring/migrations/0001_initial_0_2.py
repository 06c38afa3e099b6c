"""The tables of Waymark 0.2, with partitions and triggers that Django's models cannot describe.

`replaces` names the migrations of development versions before 0.2: a database that has them all is up to date.
"""

from datetime import UTC, datetime, timedelta

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import monitoring.models.notifications
import monitoring.models.savepoints
import monitoring.models.sealed_json
import monitoring.models.secret_field
from django.conf import settings
from django.db import migrations, models

WEEK = timedelta(days=7)
WEEKS_AHEAD = 2
# Tables that are partitioned by time, and the column of the partition key.
PARTITIONED = (
    ("monitoring_checkpoint", "triggered_at"),
    ("monitoring_operatorcheckpoint", "triggered_at"),
    ("monitoring_countersample", "at"),
)
# A unique key of a partitioned table must contain the partition key. Django adds the foreign key of counter samples
# itself, at the end of the migration.
CONSTRAINTS = """
ALTER TABLE monitoring_checkpoint
    ADD CONSTRAINT checkpoint_id_is_unique_per_run UNIQUE (run_id, checkpoint_id, triggered_at),
    ADD CONSTRAINT monitoring_checkpoint_run_id_fk FOREIGN KEY (run_id) REFERENCES monitoring_run (id)
        DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE monitoring_operatorcheckpoint
    ADD CONSTRAINT one_row_per_checkpoint_and_operator UNIQUE (checkpoint_id, vertex_id, triggered_at);
ALTER TABLE monitoring_countersample
    ADD CONSTRAINT one_counter_sample_per_run_and_moment UNIQUE (run_id, at);
"""
# The pipeline for roll-ups finds changed and deleted checkpoints by the transaction ID.
TRIGGERS = """
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
        NEW.changed_in := OLD.changed_in;  -- the row was read before its last change
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoint_changed BEFORE INSERT OR UPDATE ON monitoring_checkpoint
    FOR EACH ROW EXECUTE FUNCTION monitoring_checkpoint_changed();
CREATE FUNCTION monitoring_checkpoint_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO monitoring_checkpointdeletion (job_id, triggered_at, deleted_in)
    SELECT job_id, OLD.triggered_at, pg_current_xact_id()::text::bigint FROM monitoring_run WHERE id = OLD.run_id;
    RETURN NULL;
END $$;
CREATE TRIGGER checkpoint_deleted AFTER DELETE ON monitoring_checkpoint
    FOR EACH ROW EXECUTE FUNCTION monitoring_checkpoint_deleted();
CREATE FUNCTION monitoring_partition_touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO monitoring_partitiontouch (partition, moment)
        VALUES (TG_TABLE_NAME, (to_jsonb(OLD) ->> TG_ARGV[0])::timestamptz);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO monitoring_partitiontouch (partition, moment)
        VALUES (TG_TABLE_NAME, (to_jsonb(NEW) ->> TG_ARGV[0])::timestamptz);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION monitoring_checkpoint_came_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('waymark.moving', true), '') = 'on' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' OR NEW.changed_in <> OLD.changed_in THEN
        INSERT INTO monitoring_partitiontouch (partition, moment) VALUES (TG_TABLE_NAME, NEW.triggered_at);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER came_late AFTER INSERT OR UPDATE ON monitoring_checkpoint_before
    FOR EACH ROW EXECUTE FUNCTION monitoring_checkpoint_came_late();
-- Sketches are small numbers with many zeros: compressed from a few hundred bytes on, and kept in the row.
ALTER TABLE monitoring_rollup SET (toast_tuple_target = 256);
"""
NO_TRIGGERS = """
DROP FUNCTION monitoring_checkpoint_changed() CASCADE;
DROP FUNCTION monitoring_checkpoint_deleted() CASCADE;
DROP FUNCTION monitoring_partition_touched() CASCADE;
DROP FUNCTION monitoring_checkpoint_came_late() CASCADE;
"""


def partition(apps, schema_editor):
    """Replace the empty tables that Django created by partitioned tables with the same columns and indexes."""
    now = datetime.now(UTC)
    with schema_editor.connection.cursor() as cursor:
        for table, key in PARTITIONED:
            indexes = _indexes(cursor, table)
            cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_plain")
            cursor.execute(
                f"CREATE TABLE {table} (LIKE {table}_plain INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING CONSTRAINTS"
                f" INCLUDING STORAGE) PARTITION BY RANGE ({key})"
            )
            for name, start, end in _partitions(table, now):
                cursor.execute(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({start}) TO ({end})")
            cursor.execute(f"DROP TABLE {table}_plain CASCADE")
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (id, {key})")
            for definition in indexes:
                cursor.execute(definition)
        cursor.execute(CONSTRAINTS)


def _indexes(cursor, table):
    """Return the definitions of the indexes that belong to no constraint."""
    cursor.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s AND NOT EXISTS ("
        " SELECT FROM pg_constraint WHERE conname = indexname AND conrelid = to_regclass(%s))",
        [table, table],
    )
    return [definition for (definition,) in cursor.fetchall()]


def _partitions(table, now):
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = day - timedelta(days=day.weekday())
    end = begin + (1 + WEEKS_AHEAD) * WEEK
    yield f"{table}_before", "MINVALUE", f"'{begin.isoformat()}'"
    while begin < end:
        yield f"{table}_{begin:%Y%m%d}", f"'{begin.isoformat()}'", f"'{(begin + WEEK).isoformat()}'"
        begin += WEEK
    yield f"{table}_after", f"'{end.isoformat()}'", "MAXVALUE"


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ("monitoring", "0001_initial"),
        ("monitoring", "0002_savepoint_timetables"),
        ("monitoring", "0003_secrets_at_rest"),
        ("monitoring", "0004_incidents_of_clusters"),
        ("monitoring", "0005_what_engines_say"),
        ("monitoring", "0006_how_clusters_are_found_and_asked"),
        ("monitoring", "0007_savepoint_retention"),
        ("monitoring", "0008_poll_claims_and_rhythms"),
        ("monitoring", "0009_rules_of_every_kind"),
        ("monitoring", "0010_notifications_and_messages"),
        ("monitoring", "0011_own_ticks"),
        ("monitoring", "0012_launch_versions"),
        ("monitoring", "0013_maintenance_by_selector"),
        ("monitoring", "0014_any_host_name"),
        ("monitoring", "0015_automation_rules"),
        ("monitoring", "0016_when_the_end_was_seen"),
        ("monitoring", "0017_programs_kept"),
        ("monitoring", "0018_time_partitions"),
        ("monitoring", "0019_checked_states"),
        ("monitoring", "0020_the_way_back"),
        ("monitoring", "0021_another_cluster_answers"),
        ("monitoring", "0022_saved_views"),
        ("monitoring", "0023_state_reads"),
        ("monitoring", "0024_access"),
        ("monitoring", "0025_when_a_jobs_pause_ends"),
        ("monitoring", "0026_rollups"),
        ("monitoring", "0027_restart_budget"),
        ("monitoring", "0028_archive"),
        ("monitoring", "0029_zookeeper_access"),
        ("monitoring", "0030_which_hours_are_kept"),
        ("monitoring", "0031_baselines_of_every_figure"),
        ("monitoring", "0032_how_long_answers_are_kept"),
        ("monitoring", "0033_what_a_call_was_about_to_ask"),
        ("monitoring", "0034_changes_by_run"),
        ("monitoring", "0035_what_comes_late"),
        ("monitoring", "0036_hourly_baselines"),
        ("monitoring", "0037_storage_that_was_silent"),
        ("monitoring", "0038_log_in_failures_without_names"),
        ("monitoring", "0039_seal_launch_secrets"),
        ("monitoring", "0040_removed_channels"),
        ("monitoring", "0041_savepoints_that_are_gone"),
        ("monitoring", "0042_refused_starts"),
        ("monitoring", "0043_runs_of_jobs_that_end"),
        ("monitoring", "0044_runs_that_wait_to_start"),
        ("monitoring", "0045_imported_state"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('checkpoint_id', models.BigIntegerField()),
                ('status', models.CharField(choices=[('IN_PROGRESS', 'Pending'), ('COMPLETED', 'Completed'), ('FAILED', 'Failed')], max_length=12)),
                ('is_savepoint', models.BooleanField(default=False)),
                ('checkpoint_type', models.CharField(choices=[('CHECKPOINT', 'checkpoint'), ('UNALIGNED_CHECKPOINT', 'unaligned checkpoint'), ('SAVEPOINT', 'savepoint'), ('SYNC_SAVEPOINT', 'savepoint on stop')], default='CHECKPOINT', max_length=24)),
                ('savepoint_format', models.CharField(blank=True, default='', max_length=12)),
                ('triggered_at', models.DateTimeField()),
                ('latest_ack_at', models.DateTimeField(null=True)),
                ('failed_at', models.DateTimeField(null=True)),
                ('failure_message', models.TextField(blank=True, default='')),
                ('end_to_end_duration', models.BigIntegerField(null=True)),
                ('checkpointed_size', models.BigIntegerField(null=True)),
                ('state_size', models.BigIntegerField(null=True)),
                ('processed_data', models.BigIntegerField(null=True)),
                ('persisted_data', models.BigIntegerField(null=True)),
                ('num_subtasks', models.PositiveIntegerField(default=0)),
                ('num_acknowledged_subtasks', models.PositiveIntegerField(default=0)),
                ('external_path', models.TextField(blank=True, default='')),
                ('discarded', models.BooleanField(default=False)),
                ('alignment_max', models.BigIntegerField(null=True)),
                ('start_delay_max', models.BigIntegerField(null=True)),
                ('sync_max', models.BigIntegerField(null=True)),
                ('async_max', models.BigIntegerField(null=True)),
                ('final', models.BooleanField(default=False)),
                ('first_seen_at', models.DateTimeField(auto_now_add=True)),
                ('changed_in', models.BigIntegerField(default=0, editable=False)),
            ],
            options={
                'ordering': ('-triggered_at', '-checkpoint_id'),
            },
        ),
        migrations.CreateModel(
            name='Cluster',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('discovery', models.CharField(choices=[('url', 'by URL'), ('zookeeper', 'through ZooKeeper')], default='url', max_length=10)),
                ('rest_url', models.CharField(blank=True, max_length=500)),
                ('zookeeper_hosts', models.CharField(blank=True, default='', max_length=500)),
                ('zookeeper_root', models.CharField(blank=True, default='', max_length=200)),
                ('zookeeper_cluster_id', models.CharField(blank=True, default='', max_length=200)),
                ('zookeeper_authentication', models.CharField(choices=[('none', 'none'), ('digest', 'user name for ACLs (digest)'), ('sasl', 'log-in (SASL, DIGEST-MD5)')], default='none', max_length=10)),
                ('zookeeper_username', models.CharField(blank=True, default='', max_length=200)),
                ('zookeeper_password', monitoring.models.secret_field.SecretField()),
                ('zookeeper_tls', models.BooleanField(default=False)),
                ('leader_named_at', models.DateTimeField(null=True)),
                ('leader_problem', models.TextField(blank=True, default='')),
                ('authentication', models.CharField(choices=[('none', 'none'), ('bearer', 'bearer token'), ('basic', 'user name and password')], default='none', max_length=10)),
                ('token', monitoring.models.secret_field.SecretField()),
                ('username', models.CharField(blank=True, default='', max_length=200)),
                ('password', monitoring.models.secret_field.SecretField()),
                ('ca_bundle', models.TextField(blank=True, default='')),
                ('client_certificate', models.TextField(blank=True, default='')),
                ('client_key', monitoring.models.secret_field.SecretField()),
                ('engine', models.CharField(choices=[('unknown', 'not known yet'), ('flink', 'Apache Flink'), ('spark', 'PySpark')], default='unknown', max_length=10)),
                ('version', models.CharField(blank=True, default='', max_length=50)),
                ('history_length', models.PositiveIntegerField(null=True)),
                ('answers_kept_s', models.FloatField(null=True)),
                ('labels', models.JSONField(blank=True, default=dict)),
                ('enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.TextField(blank=True, default='')),
                ('archived_at', models.DateTimeField(null=True)),
                ('poll_interval_s', models.FloatField(default=3.0, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3600)])),
                ('request_limit_s', models.FloatField(default=10.0, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(60)])),
                ('requests_at_once', models.PositiveSmallIntegerField(default=8, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(64)])),
                ('savepoints_at_once', models.PositiveSmallIntegerField(default=4)),
                ('savepoint_jitter_s', models.PositiveIntegerField(default=60)),
                ('identity', models.JSONField(null=True)),
                ('stranger', models.JSONField(null=True)),
                ('next_poll_at', models.DateTimeField(db_index=True, null=True)),
                ('poll_claimed_until', models.DateTimeField(null=True)),
                ('poll_claimed_by', models.CharField(blank=True, default='', max_length=32)),
                ('read_until', models.DateTimeField(null=True)),
                ('revision', models.BigIntegerField(default=0)),
                ('last_answer_at', models.DateTimeField(null=True)),
                ('unreachable_since', models.DateTimeField(null=True)),
                ('consecutive_failures', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Program',
            fields=[
                ('sha256', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('size', models.BigIntegerField()),
                ('uploaded_by', models.CharField(max_length=150)),
                ('uploaded_at', models.DateTimeField()),
            ],
            options={
                'ordering': ('-uploaded_at',),
            },
        ),
        migrations.CreateModel(
            name='RollupProgress',
            fields=[
                ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('done', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('program', models.PositiveSmallIntegerField(null=True)),
                ('hours_from', models.DateTimeField(null=True)),
                ('hours_kept', models.PositiveIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Tick',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('task', models.CharField(max_length=100, unique=True)),
                ('worker', models.CharField(blank=True, default='', max_length=200)),
                ('ended_at', models.DateTimeField(null=True)),
                ('took_ms', models.PositiveIntegerField(null=True)),
                ('sentence', models.TextField(blank=True, default='')),
                ('said_at', models.DateTimeField(null=True)),
                ('failed_at', models.DateTimeField(null=True)),
                ('failure', models.TextField(blank=True, default='')),
                ('runs', models.PositiveBigIntegerField(default=0)),
                ('failures', models.PositiveBigIntegerField(default=0)),
            ],
            options={
                'ordering': ('task',),
            },
        ),
        migrations.CreateModel(
            name='ArchivedFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('checkpoints', 'checkpoints'), ('operators', 'operators of checkpoints'), ('samples', 'counter samples')], max_length=12)),
                ('cluster_id', models.BigIntegerField()),
                ('day', models.DateField()),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('path', models.CharField(max_length=300, unique=True)),
                ('rows', models.BigIntegerField()),
                ('size', models.BigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('footer_sha256', models.CharField(max_length=64)),
                ('least_id', models.BigIntegerField()),
                ('greatest_id', models.BigIntegerField()),
                ('runs', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('rows_by_run', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('state', models.CharField(choices=[('written', 'written and verified; its rows are still in PostgreSQL'), ('live', 'read from here; its rows are in PostgreSQL no more'), ('going', 'replaced, or of rows that changed; it is being removed'), ('expired', 'older than the archive is kept; it is being removed'), ('removed', 'older than the archive is kept, and removed')], default='written', max_length=8)),
                ('problem', models.TextField(blank=True, default='')),
                ('made_at', models.DateTimeField(auto_now_add=True)),
                ('checked_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ('day', 'cluster_id', 'since'),
                'indexes': [models.Index(fields=['kind', 'cluster_id', 'day'], name='archive_by_cluster_and_day'), models.Index(fields=['kind', 'least_id', 'greatest_id'], name='archive_by_id')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('actor', models.CharField(max_length=150)),
                ('action', models.CharField(max_length=100)),
                ('target', models.CharField(max_length=600)),
                ('reason', models.TextField(blank=True, default='')),
                ('details', models.JSONField(default=dict)),
            ],
            options={
                'ordering': ('-at', '-id'),
                'indexes': [models.Index(fields=['target', '-at'], name='monitoring__target_c5fcb6_idx')],
            },
        ),
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('mail', 'Mail'), ('webhook', 'Webhook'), ('apprise', 'Chat, paging, push')], max_length=10)),
                ('settings', models.JSONField(default=dict)),
                ('secret', monitoring.models.secret_field.SecretField()),
                ('enabled', models.BooleanField(default=True)),
                ('allow_private', models.BooleanField(default=False)),
                ('language', models.CharField(choices=monitoring.models.notifications.languages, default='en', max_length=10)),
                ('subject_template', models.TextField(blank=True, default='')),
                ('body_template', models.TextField(blank=True, default='')),
                ('group_wait_s', models.PositiveIntegerField(default=10, validators=[django.core.validators.MaxValueValidator(600)])),
                ('messages_per_10_min', models.PositiveIntegerField(default=10, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('repeat_every_s', models.PositiveIntegerField(blank=True, null=True)),
                ('escalate_after_s', models.PositiveIntegerField(blank=True, null=True)),
                ('removed_at', models.DateTimeField(editable=False, null=True)),
                ('escalate_to', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.channel')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='AlertRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(blank=True, default='', max_length=100)),
                ('selector', models.CharField(blank=True, default='', max_length=500)),
                ('kind', models.CharField(default='failed_in_window', max_length=30)),
                ('window_s', models.PositiveIntegerField(blank=True, null=True)),
                ('threshold', models.BigIntegerField(blank=True, null=True)),
                ('parameters', models.JSONField(blank=True, default=dict)),
                ('check_every_s', models.PositiveIntegerField(default=300, validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(86400)])),
                ('open_hold_s', models.PositiveIntegerField(default=0)),
                ('close_hold_s', models.PositiveIntegerField(default=0)),
                ('flap_opens', models.PositiveSmallIntegerField(default=4)),
                ('flap_window_s', models.PositiveIntegerField(default=3600)),
                ('severity', models.CharField(choices=[('warning', 'Warning'), ('critical', 'Critical')], default='warning', max_length=10)),
                ('enabled', models.BooleanField(default=True)),
                ('next_check_at', models.DateTimeField(blank=True, db_index=True, null=True)),
                ('last_checked_at', models.DateTimeField(blank=True, null=True)),
                ('evaluated_until', models.JSONField(blank=True, default=dict)),
                ('channels', models.ManyToManyField(blank=True, related_name='rules', to='monitoring.channel')),
            ],
            options={
                'ordering': ('kind', 'name', 'job_id', 'severity'),
            },
        ),
        migrations.CreateModel(
            name='CheckpointDeletion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job_id', models.BigIntegerField()),
                ('triggered_at', models.DateTimeField()),
                ('deleted_in', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(fields=['deleted_in'], name='deletions_by_transaction'), models.Index(fields=['job_id', 'triggered_at'], name='deletions_by_job')],
            },
        ),
        migrations.CreateModel(
            name='AutomationPause',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.TextField()),
                ('author', models.CharField(max_length=150)),
                ('started_at', models.DateTimeField()),
                ('until', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.CharField(blank=True, default='', max_length=150)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='automation_pauses', to='monitoring.cluster')),
            ],
            options={
                'ordering': ('-started_at',),
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=64, unique=True)),
                ('state', models.CharField(choices=[('pending', 'Waiting'), ('sent', 'Sent'), ('dead', 'Given up')], default='pending', max_length=10)),
                ('subject', models.TextField(blank=True, default='')),
                ('is_digest', models.BooleanField(default=False)),
                ('is_test', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField()),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('next_try_at', models.DateTimeField(db_index=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('sent_at', models.DateTimeField(null=True)),
                ('channel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='monitoring.channel')),
            ],
            options={
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='DeliveryAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('outcome', models.CharField(choices=[('sent', 'Sent'), ('again', 'Will be retried'), ('given_up', 'Given up')], max_length=10)),
                ('answer', models.TextField()),
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tries', to='monitoring.delivery')),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='Grant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('viewer', 'viewer'), ('operator', 'operator')], default='viewer', max_length=10)),
                ('selector', models.CharField(blank=True, default='', max_length=500)),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(max_length=150)),
                ('cluster', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitoring.cluster')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='grants', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('user', 'id'),
            },
        ),
        migrations.CreateModel(
            name='IdempotentAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('digest', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField(null=True)),
                ('body', models.BinaryField(default=bytes)),
                ('about', models.JSONField(null=True)),
                ('at', models.DateTimeField(db_index=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(default='failed_in_window', max_length=30)),
                ('state', models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('snoozed', 'Snoozed'), ('resolved', 'Resolved')], default='open', max_length=12)),
                ('severity', models.CharField(choices=[('warning', 'Warning'), ('critical', 'Critical')], max_length=10)),
                ('sentence', models.TextField()),
                ('opened_at', models.DateTimeField()),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('acknowledged_by', models.CharField(blank=True, default='', max_length=150)),
                ('snoozed_until', models.DateTimeField(db_index=True, null=True)),
                ('resolved_at', models.DateTimeField(null=True)),
                ('resolved_by', models.CharField(blank=True, default='', max_length=150)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='monitoring.cluster')),
                ('inhibited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='inhibited', to='monitoring.incident')),
                ('rule', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='incidents', to='monitoring.alertrule')),
            ],
            options={
                'ordering': ('-opened_at',),
            },
        ),
        migrations.CreateModel(
            name='IncidentEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('opened', 'Opened'), ('changed', 'Changed'), ('acknowledged', 'Acknowledged'), ('snoozed', 'Snoozed'), ('woken', 'Snooze ended'), ('inhibited', 'Hidden'), ('released', 'No longer hidden'), ('resolved', 'Resolved')], max_length=12)),
                ('text', models.TextField()),
                ('evidence', models.JSONField(default=dict)),
                ('times', models.PositiveIntegerField(default=1)),
                ('first_at', models.DateTimeField(null=True)),
                ('incident', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='monitoring.incident')),
            ],
            options={
                'ordering': ('at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=500)),
                ('labels', models.JSONField(blank=True, default=dict)),
                ('launch', monitoring.models.sealed_json.SealedLaunchField(blank=True, null=True)),
                ('epoch', models.PositiveIntegerField(default=0)),
                ('auto_restart', models.BooleanField(default=False)),
                ('restore_from', models.CharField(choices=[('newest', 'newest trusted snapshot of any type'), ('savepoint', 'newest savepoint only')], default='newest', max_length=10)),
                ('max_restarts_per_hour', models.PositiveIntegerField(default=6)),
                ('max_restarts_per_day', models.PositiveIntegerField(default=24)),
                ('restart_on_lost', models.BooleanField(default=True)),
                ('oldest_state_s', models.PositiveIntegerField(blank=True, null=True)),
                ('allow_empty_start', models.BooleanField(default=False)),
                ('breaker_opened_at', models.DateTimeField(blank=True, null=True)),
                ('breaker_reason', models.TextField(blank=True, default='')),
                ('budget_since', models.DateTimeField(blank=True, null=True)),
                ('managed_elsewhere', models.CharField(blank=True, default='', max_length=200)),
                ('savepoint_interval_s', models.PositiveIntegerField(blank=True, null=True)),
                ('savepoint_cron', models.CharField(blank=True, default='', max_length=100)),
                ('savepoint_time_zone', models.CharField(default='UTC', max_length=64)),
                ('next_savepoint_at', models.DateTimeField(blank=True, db_index=True, null=True)),
                ('savepoints_kept', models.PositiveIntegerField(blank=True, null=True)),
                ('savepoints_kept_s', models.PositiveIntegerField(blank=True, null=True)),
                ('run_cron', models.CharField(blank=True, default='', max_length=100)),
                ('run_time_zone', models.CharField(default='UTC', max_length=64)),
                ('run_cron_since', models.DateTimeField(blank=True, null=True)),
                ('next_run_at', models.DateTimeField(blank=True, db_index=True, null=True)),
                ('run_problem', models.TextField(blank=True, default='')),
                ('final_savepoints_kept', models.PositiveIntegerField(blank=True, default=10, null=True)),
                ('automation_paused', models.BooleanField(default=False)),
                ('automation_paused_until', models.DateTimeField(blank=True, null=True)),
                ('automation_note', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='jobs', to='monitoring.cluster')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.AddField(
            model_name='incident',
            name='job',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='monitoring.job'),
        ),
        migrations.CreateModel(
            name='HourlyBaseline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('figure', models.CharField(max_length=30)),
                ('day', models.DateField()),
                ('weeks', models.PositiveSmallIntegerField()),
                ('p95s', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), size=24)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='hourly_baselines', to='monitoring.job')),
            ],
        ),
        migrations.CreateModel(
            name='FigureBaseline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('figure', models.CharField(default='state_size', max_length=30)),
                ('day', models.DateField()),
                ('days', models.PositiveSmallIntegerField()),
                ('p95', models.BigIntegerField(null=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='figure_baselines', to='monitoring.job')),
            ],
        ),
        migrations.CreateModel(
            name='CheckedState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.TextField()),
                ('checked_at', models.DateTimeField()),
                ('problem', models.TextField(blank=True, default='')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checked_states', to='monitoring.job')),
            ],
        ),
        migrations.AddField(
            model_name='alertrule',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='rules', to='monitoring.job'),
        ),
        migrations.CreateModel(
            name='JobConfiguration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('parts', models.JSONField(default=dict)),
                ('since', models.DateTimeField()),
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='configuration', to='monitoring.job')),
            ],
        ),
        migrations.CreateModel(
            name='LaunchVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('spec', monitoring.models.sealed_json.SealedLaunchField()),
                ('origin', models.CharField(choices=[('found', 'reported by the engine'), ('edited', 'edited'), ('restart', 'with a restart')], max_length=10)),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(blank=True, default='', max_length=150)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='launch_versions', to='monitoring.job')),
            ],
            options={
                'ordering': ('-number',),
            },
        ),
        migrations.CreateModel(
            name='LogInFailure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name_digest', models.CharField(max_length=64)),
                ('has_account', models.BooleanField()),
                ('address', models.CharField(max_length=64)),
                ('known_device', models.BooleanField(default=False)),
                ('at', models.DateTimeField(db_index=True)),
            ],
            options={
                'indexes': [models.Index(fields=['name_digest', '-at'], name='failures_of_a_name'), models.Index(fields=['address', '-at'], name='failures_of_an_address')],
            },
        ),
        migrations.CreateModel(
            name='MaintenanceWindow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.TextField()),
                ('selector', models.CharField(blank=True, default='', max_length=500)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_by', models.CharField(max_length=150)),
                ('ended_by', models.CharField(blank=True, default='', max_length=150)),
                ('cluster', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maintenance', to='monitoring.cluster')),
                ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maintenance', to='monitoring.job')),
            ],
            options={
                'ordering': ('-starts_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(choices=[('opened', 'Opened'), ('resolved', 'Resolved'), ('repeat', 'Still open'), ('escalation', 'Escalated'), ('woken', 'Snooze ended')], max_length=10)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('held', 'Hidden'), ('gathered', 'In a message'), ('dropped', 'Not sent')], default='waiting', max_length=10)),
                ('due_at', models.DateTimeField()),
                ('why', models.TextField(blank=True, default='')),
                ('text', models.TextField(blank=True, default='')),
                ('channel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.channel')),
                ('delivery', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.delivery')),
                ('event', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.incidentevent')),
                ('silenced_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='silenced', to='monitoring.maintenancewindow')),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='OperatorCheckpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('triggered_at', models.DateTimeField()),
                ('vertex_id', models.CharField(max_length=32)),
                ('name', models.TextField()),
                ('position', models.PositiveSmallIntegerField(default=0)),
                ('num_subtasks', models.PositiveIntegerField()),
                ('num_acknowledged_subtasks', models.PositiveIntegerField()),
                ('latest_ack_at', models.DateTimeField(null=True)),
                ('end_to_end_duration', models.BigIntegerField(null=True)),
                ('checkpointed_size', models.BigIntegerField(null=True)),
                ('state_size', models.BigIntegerField(null=True)),
                ('processed_data', models.BigIntegerField(null=True)),
                ('persisted_data', models.BigIntegerField(null=True)),
                ('subtask_ack_at', django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(null=True), default=list, size=None)),
                ('subtask_end_to_end', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_checkpointed_size', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_state_size', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_sync', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_async', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_alignment', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_start_delay', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_processed', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_persisted', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(null=True), default=list, size=None)),
                ('subtask_unaligned', django.contrib.postgres.fields.ArrayField(base_field=models.BooleanField(null=True), default=list, size=None)),
                ('subtask_aborted', django.contrib.postgres.fields.ArrayField(base_field=models.BooleanField(null=True), default=list, size=None)),
                ('checkpoint', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='operators', to='monitoring.checkpoint')),
            ],
            options={
                'ordering': ('position',),
            },
        ),
        migrations.CreateModel(
            name='Outage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('no_answer', 'the cluster did not answer'), ('stranger', 'another cluster answered at its address'), ('not_asked', 'Waymark did not ask')], max_length=10)),
                ('began_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('why', models.TextField(blank=True, default='')),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='outages', to='monitoring.cluster')),
            ],
            options={
                'ordering': ('-began_at',),
            },
        ),
        migrations.CreateModel(
            name='PartitionTouch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('partition', models.CharField(max_length=63)),
                ('moment', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['partition'], name='touches_by_partition')],
            },
        ),
        migrations.CreateModel(
            name='PlacedProgram',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('jar_id', models.CharField(max_length=500)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='placed_programs', to='monitoring.cluster')),
                ('program', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='placed', to='monitoring.program')),
            ],
        ),
        migrations.CreateModel(
            name='ProgramPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('content', models.BinaryField()),
                ('program', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='monitoring.program')),
            ],
            options={
                'ordering': ('number',),
            },
        ),
        migrations.CreateModel(
            name='RestartAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('epoch', models.PositiveIntegerField()),
                ('trigger', models.CharField(choices=[('automatic', 'automatic'), ('manual', 'manual'), ('again', 'run again'), ('scheduled', 'on schedule')], max_length=10)),
                ('state', models.CharField(choices=[('decided', 'Decided'), ('uploading', 'Uploading the program'), ('importing', 'Copying the checkpoint location'), ('validating', 'Checking the snapshot'), ('stopping', 'Stopping the job'), ('launching', 'Starting the job'), ('waiting', 'Waiting for the job to run'), ('succeeded', 'Running again'), ('failed', 'Failed'), ('canceled', 'Canceled')], default='decided', max_length=12)),
                ('reason', models.TextField()),
                ('requested_by', models.CharField(blank=True, default='', max_length=150)),
                ('engine_job_id', models.CharField(max_length=32)),
                ('launch', monitoring.models.sealed_json.SealedLaunchField(null=True)),
                ('goes_back', models.BooleanField(default=False)),
                ('from_stop', models.BooleanField(default=False)),
                ('start_empty', models.BooleanField(default=False)),
                ('imports', models.JSONField(blank=True, default=dict)),
                ('restore_path', models.TextField(blank=True, default='')),
                ('restore_is_savepoint', models.BooleanField(null=True)),
                ('restore_state_at', models.DateTimeField(null=True)),
                ('rejected', models.JSONField(default=list)),
                ('silent', models.JSONField(default=list)),
                ('stop_first', models.BooleanField(default=False)),
                ('launch_sent_at', models.DateTimeField(null=True)),
                ('launches', models.PositiveSmallIntegerField(default=0)),
                ('launched_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('deadline_at', models.DateTimeField()),
                ('next_step_at', models.DateTimeField(db_index=True, null=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('error', models.TextField(blank=True, default='')),
                ('back_from', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='way_back', to='monitoring.restartattempt')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='restart_attempts', to='monitoring.job')),
            ],
            options={
                'ordering': ('-created_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='RefusedStart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('engine_job_id', models.CharField(db_index=True, max_length=32)),
                ('path', models.TextField()),
                ('refused_at', models.DateTimeField()),
                ('left_directory', models.TextField(null=True)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='refused_starts', to='monitoring.restartattempt')),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='RestartDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('verdict', models.CharField(choices=[('restart', 'restarted'), ('leave', 'no action yet'), ('person', 'needs a person'), ('breaker', 'breaker opened')], max_length=10)),
                ('reason', models.TextField()),
                ('facts', models.JSONField(default=dict)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='restart_decisions', to='monitoring.job')),
            ],
            options={
                'ordering': ('-at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='RestartStep',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('state', models.CharField(choices=[('running', 'In progress'), ('done', 'Done'), ('failed', 'Failed'), ('skipped', 'Not needed')], max_length=10)),
                ('text', models.TextField(blank=True, default='')),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='monitoring.restartattempt')),
            ],
            options={
                'ordering': ('started_at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('pk', models.CompositePrimaryKey('job_id', 'seconds', 'start', blank=True, editable=False, primary_key=True, serialize=False)),
                ('seconds', models.IntegerField()),
                ('start', models.DateTimeField()),
                ('version', models.SmallIntegerField()),
                ('completed', models.BigIntegerField()),
                ('failed', models.BigIntegerField()),
                ('pending', models.BigIntegerField()),
                ('completed_savepoints', models.BigIntegerField()),
                ('failed_savepoints', models.BigIntegerField()),
                ('duration_sum', models.BigIntegerField(null=True)),
                ('duration_min', models.BigIntegerField(null=True)),
                ('duration_max', models.BigIntegerField(null=True)),
                ('alignment_sum', models.BigIntegerField(null=True)),
                ('alignment_min', models.BigIntegerField(null=True)),
                ('alignment_max', models.BigIntegerField(null=True)),
                ('start_delay_sum', models.BigIntegerField(null=True)),
                ('start_delay_min', models.BigIntegerField(null=True)),
                ('start_delay_max', models.BigIntegerField(null=True)),
                ('state_size_sum', models.BigIntegerField(null=True)),
                ('state_size_min', models.BigIntegerField(null=True)),
                ('state_size_max', models.BigIntegerField(null=True)),
                ('checkpointed_size_sum', models.BigIntegerField(null=True)),
                ('checkpointed_size_min', models.BigIntegerField(null=True)),
                ('checkpointed_size_max', models.BigIntegerField(null=True)),
                ('processed_sum', models.BigIntegerField(null=True)),
                ('processed_min', models.BigIntegerField(null=True)),
                ('processed_max', models.BigIntegerField(null=True)),
                ('duration_sketch', models.BinaryField()),
                ('alignment_sketch', models.BinaryField()),
                ('start_delay_sketch', models.BinaryField()),
                ('state_size_sketch', models.BinaryField()),
                ('checkpointed_size_sketch', models.BinaryField()),
                ('processed_sketch', models.BinaryField()),
                ('reasons', models.TextField(blank=True, default='')),
                ('job', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollups', to='monitoring.job')),
            ],
        ),
        migrations.CreateModel(
            name='RuleState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('phase', models.CharField(choices=[('quiet', 'Quiet'), ('pending', 'Waiting out the hold'), ('open', 'Open'), ('closing', 'Closing'), ('dismissed', 'Dealt with')], default='quiet', max_length=10)),
                ('since', models.DateTimeField()),
                ('opened_at', models.DateTimeField(null=True)),
                ('flapping', models.BooleanField(default=False)),
                ('opens', django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(), default=list, size=None)),
                ('counts_since', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='rule_states', to='monitoring.cluster')),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='rule_states', to='monitoring.job')),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='states', to='monitoring.alertrule')),
            ],
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('engine_job_id', models.CharField(max_length=32)),
                ('state', models.CharField(choices=[('INITIALIZING', 'Initializing'), ('CREATED', 'Created'), ('RUNNING', 'Running'), ('FAILING', 'Failing'), ('FAILED', 'Failed'), ('CANCELLING', 'Cancelling'), ('CANCELED', 'Canceled'), ('FINISHED', 'Finished'), ('RESTARTING', 'Restarting'), ('SUSPENDED', 'Suspended'), ('RECONCILING', 'Reconciling'), ('LOST', 'Lost')], max_length=20)),
                ('observed_at', models.DateTimeField()),
                ('moved_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('end_seen_at', models.DateTimeField(null=True)),
                ('missing_since', models.DateTimeField(null=True)),
                ('missing_polls', models.PositiveIntegerField(default=0)),
                ('vertices', models.JSONField(default=list)),
                ('checkpoint_config', models.JSONField(default=dict)),
                ('counts', models.JSONField(default=dict)),
                ('summary', models.JSONField(default=dict)),
                ('restored_path', models.TextField(blank=True, default='')),
                ('restored_checkpoint_id', models.BigIntegerField(null=True)),
                ('restored_is_savepoint', models.BooleanField(null=True)),
                ('restored_at', models.DateTimeField(null=True)),
                ('exception', models.TextField(blank=True, default='')),
                ('exceptions', models.JSONField(default=list)),
                ('next_read_at', models.DateTimeField(null=True)),
                ('outcome', models.JSONField(default=dict)),
                ('launch_wait', models.JSONField(default=dict)),
                ('final_read_done', models.BooleanField(default=False)),
                ('superseded', models.BooleanField(default=False)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='monitoring.job')),
                ('launch_version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='monitoring.launchversion')),
            ],
            options={
                'ordering': ('-number',),
            },
        ),
        migrations.AddField(
            model_name='restartattempt',
            name='new_run',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.run'),
        ),
        migrations.AddField(
            model_name='restartattempt',
            name='old_run',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.run'),
        ),
        migrations.AddField(
            model_name='job',
            name='current_run',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.run'),
        ),
        migrations.CreateModel(
            name='CounterSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('restored', models.BigIntegerField()),
                ('total', models.BigIntegerField()),
                ('in_progress', models.BigIntegerField()),
                ('completed', models.BigIntegerField()),
                ('failed', models.BigIntegerField()),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='counter_samples', to='monitoring.run')),
            ],
            options={
                'ordering': ('run_id', 'at'),
            },
        ),
        migrations.CreateModel(
            name='ConfigurationChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('part', models.CharField(choices=[('checkpointing', 'Checkpointing'), ('execution', 'Execution'), ('operators', 'Parallelism')], max_length=20)),
                ('key', models.TextField()),
                ('kind', models.CharField(choices=[('added', 'added'), ('changed', 'changed'), ('removed', 'removed')], max_length=10)),
                ('before', models.JSONField(null=True)),
                ('after', models.JSONField(null=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='configuration_changes', to='monitoring.job')),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.run')),
            ],
            options={
                'ordering': ('-at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='CheckpointGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first_id', models.BigIntegerField()),
                ('last_id', models.BigIntegerField()),
                ('noticed_at', models.DateTimeField()),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='gaps', to='monitoring.run')),
            ],
            options={
                'ordering': ('-first_id',),
            },
        ),
        migrations.AddField(
            model_name='checkpoint',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='monitoring.run'),
        ),
        migrations.CreateModel(
            name='RunException',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('name', models.TextField(blank=True, default='')),
                ('message', models.TextField(blank=True, default='')),
                ('root_cause', models.TextField(blank=True, default='')),
                ('task', models.TextField(blank=True, default='')),
                ('host', models.TextField(blank=True, default='')),
                ('stacktrace', models.TextField(blank=True, default='')),
                ('digest', models.CharField(max_length=32)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='exception_rows', to='monitoring.run')),
            ],
            options={
                'ordering': ('-at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='RunStateChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('source', models.CharField(blank=True, default='', max_length=20)),
                ('target', models.CharField(max_length=20)),
                ('why', models.TextField(blank=True, default='')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='state_changes', to='monitoring.run')),
            ],
            options={
                'ordering': ('-at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(max_length=1000)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_views', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Savepoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('trigger_id', models.CharField(default=monitoring.models.savepoints.new_trigger_id, max_length=32, unique=True)),
                ('origin', models.CharField(choices=[('scheduled', 'schedule'), ('manual', 'manual'), ('restart', 'before a restart'), ('final', 'at the end of a run'), ('adopted', 'taken elsewhere')], max_length=10)),
                ('state', models.CharField(choices=[('deferred', 'Deferred'), ('requested', 'Requested'), ('in_progress', 'In progress'), ('completed', 'Completed'), ('failed', 'Failed'), ('disposing', 'Deleting'), ('disposed', 'Deleted')], default='requested', max_length=12)),
                ('stops_job', models.BooleanField(default=False)),
                ('path', models.TextField(blank=True, default='')),
                ('size', models.BigIntegerField(null=True)),
                ('requested_by', models.CharField(blank=True, default='', max_length=150)),
                ('requested_at', models.DateTimeField()),
                ('posted_at', models.DateTimeField(null=True)),
                ('forgotten_at', models.DateTimeField(null=True)),
                ('completed_at', models.DateTimeField(null=True)),
                ('deadline_at', models.DateTimeField(null=True)),
                ('next_check_at', models.DateTimeField(db_index=True, null=True)),
                ('failure', models.TextField(blank=True, default='')),
                ('pinned', models.BooleanField(default=False)),
                ('note', models.TextField(blank=True, default='')),
                ('checked_at', models.DateTimeField(null=True)),
                ('problem', models.TextField(blank=True, default='')),
                ('gone_at', models.DateTimeField(null=True)),
                ('disposal_reason', models.TextField(blank=True, default='')),
                ('disposal_request', models.CharField(blank=True, default='', max_length=64)),
                ('disposal_tries', models.PositiveIntegerField(default=0)),
                ('disposed_at', models.DateTimeField(null=True)),
                ('checkpoint', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.checkpoint')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='savepoints', to='monitoring.job')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='savepoints', to='monitoring.run')),
            ],
            options={
                'ordering': ('-requested_at', '-id'),
            },
        ),
        migrations.AddField(
            model_name='restartattempt',
            name='savepoint',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.savepoint'),
        ),
        migrations.AddField(
            model_name='restartattempt',
            name='stop_savepoint',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.savepoint'),
        ),
        migrations.CreateModel(
            name='StateRead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('list', 'what it holds'), ('read', 'keys and values'), ('sizes', 'rows by partition'), ('diff', 'what changed')], max_length=5)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Reading'), ('done', 'Done'), ('failed', 'Failed')], default='waiting', max_length=8)),
                ('snapshot', models.BigIntegerField()),
                ('location', models.TextField()),
                ('label', models.CharField(max_length=120)),
                ('other_snapshot', models.BigIntegerField(null=True)),
                ('other_location', models.TextField(blank=True, default='')),
                ('other_label', models.CharField(blank=True, default='', max_length=120)),
                ('query', models.TextField(blank=True, default='')),
                ('operator', models.IntegerField(null=True)),
                ('view', models.TextField(blank=True, default='')),
                ('key_field', models.TextField(blank=True, default='')),
                ('key_text', models.TextField(blank=True, default='')),
                ('contains', models.TextField(blank=True, default='')),
                ('partition', models.IntegerField(null=True)),
                ('most', models.PositiveSmallIntegerField(default=100)),
                ('asked_by', models.CharField(max_length=150)),
                ('asked_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('answer', models.JSONField(null=True)),
                ('problem', models.TextField(blank=True, default='')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='state_reads', to='monitoring.job')),
            ],
            options={
                'ordering': ('-asked_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('granted_only', models.BooleanField(default=False)),
                ('time_zone', models.CharField(blank=True, default='', max_length=64)),
                ('signed_out_at', models.DateTimeField(null=True)),
                ('oidc_issuer', models.CharField(blank=True, default='', max_length=300)),
                ('oidc_subject', models.CharField(blank=True, default='', max_length=255)),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='account', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('oidc_subject', ''), _negated=True), fields=('oidc_issuer', 'oidc_subject'), name='one_account_per_subject_of_a_provider')],
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('may_write', models.BooleanField(default=False)),
                ('start', models.CharField(max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(null=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('revoked_by', models.CharField(blank=True, default='', max_length=150)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-created_at', '-id'),
                'constraints': [models.UniqueConstraint(condition=models.Q(('revoked_at', None)), fields=('user', 'name'), name='one_valid_token_per_user_and_name')],
            },
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.UniqueConstraint(condition=models.Q(('removed_at', None)), fields=('name',), name='one_channel_per_name'),
        ),
        migrations.AddIndex(
            model_name='automationpause',
            index=models.Index(condition=models.Q(('ended_at', None)), fields=['started_at'], name='pauses_not_ended'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['channel', '-created_at'], name='deliveries_of_a_channel'),
        ),
        migrations.AddConstraint(
            model_name='grant',
            constraint=models.UniqueConstraint(fields=('user', 'cluster', 'selector'), name='one_grant_per_user_and_scope', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='grant',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster', None), ('selector__gt', '')), models.Q(('cluster__isnull', False), ('selector', '')), _connector='OR'), name='a_grant_has_one_scope'),
        ),
        migrations.AddConstraint(
            model_name='idempotentanswer',
            constraint=models.UniqueConstraint(fields=('user', 'key'), name='one_answer_per_user_and_key'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['job', '-opened_at'], name='monitoring__job_id_8dbb58_idx'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('state', 'resolved'), _negated=True), fields=['cluster'], name='unresolved_by_cluster'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'resolved'), _negated=True), fields=('rule', 'job'), name='one_unresolved_incident_per_rule_and_job'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'not_restarted'), models.Q(('state', 'resolved'), _negated=True)), fields=('job', 'kind'), name='one_unresolved_restart_incident_per_job'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('job', None), models.Q(('state', 'resolved'), _negated=True)), fields=('kind', 'rule', 'cluster'), name='one_unresolved_incident_per_rule_and_cluster', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='hourlybaseline',
            constraint=models.UniqueConstraint(fields=('day', 'weeks', 'figure', 'job'), name='one_hourly_baseline_per_figure_job_day_and_weeks'),
        ),
        migrations.AddConstraint(
            model_name='figurebaseline',
            constraint=models.UniqueConstraint(fields=('day', 'days', 'figure', 'job'), name='one_baseline_per_figure_job_day_and_length'),
        ),
        migrations.AddConstraint(
            model_name='checkedstate',
            constraint=models.UniqueConstraint(fields=('job', 'path'), name='a_state_is_checked_in_one_row'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.UniqueConstraint(fields=('job', 'kind', 'severity'), name='one_rule_per_job_kind_and_severity'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.UniqueConstraint(condition=models.Q(('job', None)), fields=('name',), name='wide_rules_have_names_of_their_own'),
        ),
        migrations.AddConstraint(
            model_name='launchversion',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='one_launch_version_per_number'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='notifications_that_wait'),
        ),
        migrations.AddConstraint(
            model_name='notification',
            constraint=models.UniqueConstraint(condition=models.Q(('reason', 'repeat'), _negated=True), fields=('event', 'channel', 'reason'), name='a_channel_is_told_of_a_step_once'),
        ),
        migrations.AddConstraint(
            model_name='operatorcheckpoint',
            constraint=models.UniqueConstraint(fields=('checkpoint', 'vertex_id', 'triggered_at'), name='one_row_per_checkpoint_and_operator'),
        ),
        migrations.AddIndex(
            model_name='outage',
            index=models.Index(fields=['cluster', '-began_at'], name='monitoring__cluster_d37c8f_idx'),
        ),
        migrations.AddConstraint(
            model_name='outage',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('cluster', 'kind'), name='one_open_outage_per_cluster'),
        ),
        migrations.AddConstraint(
            model_name='placedprogram',
            constraint=models.UniqueConstraint(fields=('cluster', 'jar_id'), name='one_program_per_jar_id'),
        ),
        migrations.AddConstraint(
            model_name='programpart',
            constraint=models.UniqueConstraint(fields=('program', 'number'), name='one_part_per_number'),
        ),
        migrations.AddIndex(
            model_name='restartdecision',
            index=models.Index(fields=['job', '-at'], name='monitoring__job_id_802c5d_idx'),
        ),
        migrations.AddIndex(
            model_name='rollup',
            index=models.Index(condition=models.Q(('seconds', 60)), fields=['start'], name='rollups_of_minutes_by_time'),
        ),
        migrations.AddConstraint(
            model_name='rulestate',
            constraint=models.UniqueConstraint(fields=('rule', 'job', 'cluster'), name='one_state_per_rule_and_subject', nulls_distinct=False),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['engine_job_id'], name='monitoring__engine__bf8152_idx'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='run_number_is_unique_per_job'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('superseded', False)), fields=('job', 'engine_job_id'), name='engine_job_id_is_unique_per_job'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.UniqueConstraint(fields=('cluster', 'name'), name='one_job_per_name_and_cluster'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('savepoint_interval_s', None), ('savepoint_cron', ''), _connector='OR'), name='one_savepoint_schedule_per_job'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('max_restarts_per_day__gte', 1), ('max_restarts_per_hour__gte', 1)), name='a_restart_budget_of_at_least_one'),
        ),
        migrations.AddConstraint(
            model_name='countersample',
            constraint=models.UniqueConstraint(fields=('run', 'at'), name='one_counter_sample_per_run_and_moment'),
        ),
        migrations.AddIndex(
            model_name='configurationchange',
            index=models.Index(fields=['job', '-at'], name='changes_by_time'),
        ),
        migrations.AddConstraint(
            model_name='checkpointgap',
            constraint=models.UniqueConstraint(fields=('run', 'first_id'), name='gap_is_noticed_once'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(fields=['run', '-triggered_at'], name='monitoring__run_id_2eda96_idx'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(fields=['run', 'status', '-triggered_at'], name='monitoring__run_id_a34baf_idx'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(condition=models.Q(('final', False)), fields=['run'], name='checkpoints_to_read_again'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(condition=models.Q(('is_savepoint', True)), fields=['run'], name='savepoints_of_a_run'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(condition=models.Q(('status', 'FAILED')), fields=['failed_at'], name='failures_by_time'),
        ),
        migrations.AddIndex(
            model_name='checkpoint',
            index=models.Index(fields=['changed_in', 'run'], name='checkpoints_by_change_and_run'),
        ),
        migrations.AddConstraint(
            model_name='checkpoint',
            constraint=models.UniqueConstraint(fields=('run', 'checkpoint_id', 'triggered_at'), name='checkpoint_id_is_unique_per_run'),
        ),
        migrations.AddIndex(
            model_name='runexception',
            index=models.Index(fields=['run', '-at'], name='exceptions_by_time'),
        ),
        migrations.AddConstraint(
            model_name='runexception',
            constraint=models.UniqueConstraint(fields=('run', 'digest'), name='an_exception_is_stored_once'),
        ),
        migrations.AddIndex(
            model_name='runstatechange',
            index=models.Index(fields=['run', '-at'], name='monitoring__run_id_4e9799_idx'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('user', 'name'), name='one_view_of_a_name_per_user'),
        ),
        migrations.AddIndex(
            model_name='savepoint',
            index=models.Index(fields=['job', '-requested_at'], name='monitoring__job_id_346db6_idx'),
        ),
        migrations.AddConstraint(
            model_name='savepoint',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('requested', 'in_progress'))), fields=('job',), name='one_savepoint_in_flight_per_job'),
        ),
        migrations.AddConstraint(
            model_name='savepoint',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'deferred')), fields=('job',), name='one_deferred_savepoint_per_job'),
        ),
        migrations.AddConstraint(
            model_name='savepoint',
            constraint=models.UniqueConstraint(condition=models.Q(('path', ''), _negated=True), fields=('job', 'path'), name='a_savepoint_path_is_recorded_once'),
        ),
        migrations.AddConstraint(
            model_name='restartattempt',
            constraint=models.UniqueConstraint(fields=('job', 'epoch'), name='one_attempt_per_job_and_epoch'),
        ),
        migrations.AddConstraint(
            model_name='restartattempt',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('succeeded', 'failed', 'canceled')), _negated=True), fields=('job',), name='one_open_attempt_per_job'),
        ),
        migrations.AddIndex(
            model_name='stateread',
            index=models.Index(fields=['job', 'snapshot', '-asked_at'], name='state_reads_of_a_snapshot'),
        ),
        migrations.AddConstraint(
            model_name='stateread',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('state',), name='one_state_read_at_a_time'),
        ),
        migrations.RunPython(partition, migrations.RunPython.noop),
        migrations.RunSQL(TRIGGERS, NO_TRIGGERS),
    ]
