"""Create the table of roll-ups by operator. A checkpoint also counts as changed when it becomes final.

Its operators may be stored after its own figures, and it is final when they are.
"""

import django.db.models.deletion
from django.db import migrations, models


CHANGED = """
CREATE OR REPLACE FUNCTION monitoring_checkpoint_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT'
        OR (OLD.run_id, OLD.status, OLD.is_savepoint, OLD.failure_message, OLD.end_to_end_duration,
            OLD.checkpointed_size, OLD.state_size, OLD.processed_data, OLD.persisted_data, OLD.alignment_max,
            OLD.start_delay_max, OLD.sync_max, OLD.async_max, OLD.num_subtasks, OLD.num_acknowledged_subtasks{old})
           IS DISTINCT FROM
           (NEW.run_id, NEW.status, NEW.is_savepoint, NEW.failure_message, NEW.end_to_end_duration,
            NEW.checkpointed_size, NEW.state_size, NEW.processed_data, NEW.persisted_data, NEW.alignment_max,
            NEW.start_delay_max, NEW.sync_max, NEW.async_max, NEW.num_subtasks, NEW.num_acknowledged_subtasks{new})
    THEN
        NEW.changed_in := pg_current_xact_id()::text::bigint;
    ELSE
        NEW.changed_in := OLD.changed_in;  -- the row was read before its last change
    END IF;
    RETURN NEW;
END $$;
"""
WITH_FINAL = CHANGED.format(old=", OLD.final", new=", NEW.final")
WITHOUT_FINAL = CHANGED.format(old="", new="")


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0022_history_servers'),
    ]

    operations = [
        migrations.CreateModel(
            name='OperatorRollup',
            fields=[
                ('pk', models.CompositePrimaryKey('job_id', 'seconds', 'start', 'operator', blank=True, editable=False, primary_key=True, serialize=False)),
                ('seconds', models.IntegerField()),
                ('start', models.DateTimeField()),
                ('operator', models.CharField(max_length=32)),
                ('completed', models.BigIntegerField()),
                ('duration_sum', models.BigIntegerField(null=True)),
                ('duration_min', models.BigIntegerField(null=True)),
                ('duration_max', models.BigIntegerField(null=True)),
                ('state_size_sum', models.BigIntegerField(null=True)),
                ('state_size_min', models.BigIntegerField(null=True)),
                ('state_size_max', models.BigIntegerField(null=True)),
                ('checkpointed_size_sum', models.BigIntegerField(null=True)),
                ('checkpointed_size_min', models.BigIntegerField(null=True)),
                ('checkpointed_size_max', models.BigIntegerField(null=True)),
                ('job', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='operator_rollups', to='monitoring.job')),
            ],
        ),
        migrations.RunSQL(WITH_FINAL, WITHOUT_FINAL),
    ]
