"""Describe archived files by month instead of day. A file of one day becomes a file of its month."""

from django.db import migrations, models

_MONTHS = "UPDATE monitoring_archivedfile SET month = date_trunc('month', month)::date"


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0005_incident_event_kinds")]

    operations = [
        migrations.RemoveIndex(model_name="archivedfile", name="archive_by_cluster_and_day"),
        migrations.RenameField(model_name="archivedfile", old_name="day", new_name="month"),
        migrations.AlterModelOptions(name="archivedfile", options={"ordering": ("month", "cluster_id", "since")}),
        migrations.AddIndex(
            model_name="archivedfile",
            index=models.Index(fields=["kind", "cluster_id", "month"], name="archive_by_cluster_and_month"),
        ),
        migrations.RunSQL(_MONTHS, migrations.RunSQL.noop),
    ]
