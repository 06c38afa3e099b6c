"""Store the newest completed checkpoint of each run, which a trigger keeps current."""

import django.db.models.deletion
from django.db import migrations, models

# Statement-level, so that a statement with many checkpoints of one run writes the run's row once.
TRIGGERS = """
ALTER TABLE monitoring_newestcompleted SET (fillfactor = 50);  -- most updates then change no index
CREATE FUNCTION monitoring_store_newest_completed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        -- A newest checkpoint was changed, moved to another run or deleted: find the newest one again.
        WITH outdated AS (
            DELETE FROM monitoring_newestcompleted newest USING earlier
            WHERE newest.run_id = earlier.run_id AND newest.checkpoint_id = earlier.checkpoint_id
              AND newest.triggered_at = earlier.triggered_at
            RETURNING newest.run_id
        )
        INSERT INTO monitoring_newestcompleted
        SELECT found.* FROM outdated CROSS JOIN LATERAL (
            SELECT run_id, checkpoint_id, triggered_at, latest_ack_at, end_to_end_duration, state_size
            FROM monitoring_checkpoint
            WHERE run_id = outdated.run_id AND status = 'COMPLETED' AND NOT is_savepoint
            ORDER BY triggered_at DESC LIMIT 1
        ) found;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO monitoring_newestcompleted AS newest
        SELECT DISTINCT ON (run_id)
               run_id, checkpoint_id, triggered_at, latest_ack_at, end_to_end_duration, state_size
        FROM written WHERE status = 'COMPLETED' AND NOT is_savepoint
        ORDER BY run_id, triggered_at DESC
        ON CONFLICT (run_id) DO UPDATE
        SET (checkpoint_id, triggered_at, latest_ack_at, end_to_end_duration, state_size) =
            (excluded.checkpoint_id, excluded.triggered_at, excluded.latest_ack_at, excluded.end_to_end_duration,
             excluded.state_size)
        WHERE excluded.triggered_at > newest.triggered_at;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER newest_completed_of_inserted AFTER INSERT ON monitoring_checkpoint
    REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION monitoring_store_newest_completed();
CREATE TRIGGER newest_completed_of_updated AFTER UPDATE ON monitoring_checkpoint
    REFERENCING OLD TABLE AS earlier NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION monitoring_store_newest_completed();
CREATE TRIGGER newest_completed_of_deleted AFTER DELETE ON monitoring_checkpoint
    REFERENCING OLD TABLE AS earlier
    FOR EACH STATEMENT EXECUTE FUNCTION monitoring_store_newest_completed();
"""
FILL = """
INSERT INTO monitoring_newestcompleted
SELECT found.* FROM monitoring_run run CROSS JOIN LATERAL (
    SELECT run_id, checkpoint_id, triggered_at, latest_ack_at, end_to_end_duration, state_size
    FROM monitoring_checkpoint
    WHERE run_id = run.id AND status = 'COMPLETED' AND NOT is_savepoint
    ORDER BY triggered_at DESC LIMIT 1
) found;
"""
NO_TRIGGERS = "DROP FUNCTION monitoring_store_newest_completed() CASCADE;"


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0020_reported_minutes'),
    ]

    operations = [
        migrations.CreateModel(
            name='NewestCompleted',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='newest_completed', serialize=False, to='monitoring.run')),
                ('checkpoint_id', models.BigIntegerField()),
                ('triggered_at', models.DateTimeField()),
                ('latest_ack_at', models.DateTimeField(null=True)),
                ('end_to_end_duration', models.BigIntegerField(null=True)),
                ('state_size', models.BigIntegerField(null=True)),
            ],
        ),
        migrations.RunSQL(TRIGGERS, NO_TRIGGERS),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
