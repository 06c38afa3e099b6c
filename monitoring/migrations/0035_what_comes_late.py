"""What comes for a day that is archived is noted, so that it is taken into the archive and counted."""

from django.db import migrations

# PostgreSQL's own moves into this partition are told by a setting, and are no news.
LATE = """
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
-- What came before there was anybody to note it.
INSERT INTO monitoring_partitiontouch (partition, moment)
SELECT 'monitoring_checkpoint_before', min(k.triggered_at) FROM monitoring_checkpoint_before k
WHERE (k.triggered_at AT TIME ZONE 'UTC')::date IN (
    SELECT day FROM monitoring_archivedfile WHERE kind = 'checkpoints' AND state = 'live')
GROUP BY (k.triggered_at AT TIME ZONE 'UTC')::date;
"""
NOT_LATE = """
DROP TRIGGER came_late ON monitoring_checkpoint_before;
DROP FUNCTION monitoring_checkpoint_came_late();
DELETE FROM monitoring_partitiontouch WHERE partition = 'monitoring_checkpoint_before';
"""


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0034_changes_by_run"),)

    operations = (migrations.RunSQL(LATE, NOT_LATE),)
