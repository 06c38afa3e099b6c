"""Starts that an engine refused because of the state to restore."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0041_savepoints_that_are_gone"),)

    operations = (
        migrations.CreateModel(
            name="RefusedStart",
            fields=(
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("engine_job_id", models.CharField(db_index=True, max_length=32)),
                ("path", models.TextField()),
                ("refused_at", models.DateTimeField()),
                ("left_directory", models.TextField(null=True)),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="refused_starts",
                        to="monitoring.restartattempt",
                    ),
                ),
            ),
            options={"ordering": ("id",)},
        ),
    )
