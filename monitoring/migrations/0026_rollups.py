"""Roll-ups of the history, and what a deleted checkpoint leaves so that they follow."""

import django.db.models.deletion
from django.db import migrations, models


DELETIONS = """
CREATE FUNCTION monitoring_checkpoint_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO monitoring_checkpointdeletion (job_id, triggered_at, deleted_in)
    SELECT job_id, OLD.triggered_at, pg_current_xact_id()::text::bigint FROM monitoring_run WHERE id = OLD.run_id;
    RETURN NULL;
END $$;
CREATE TRIGGER checkpoint_deleted AFTER DELETE ON monitoring_checkpoint
    FOR EACH ROW EXECUTE FUNCTION monitoring_checkpoint_deleted();
-- Sketches are small numbers with many zeros: compressed from a few hundred bytes on, and kept in the row.
ALTER TABLE monitoring_rollup SET (toast_tuple_target = 256);
"""
NO_DELETIONS = """
DROP TRIGGER checkpoint_deleted ON monitoring_checkpoint;
DROP FUNCTION monitoring_checkpoint_deleted();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0025_when_a_jobs_pause_ends'),
    ]

    operations = [
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
            name='RollupProgress',
            fields=[
                ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('done', models.BigIntegerField()),
                ('at', models.DateTimeField()),
            ],
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
            options={
                'indexes': [models.Index(condition=models.Q(('seconds', 60)), fields=['start'], name='rollups_of_minutes_by_time')],
            },
        ),
        migrations.RunSQL(DELETIONS, NO_DELETIONS),
    ]
