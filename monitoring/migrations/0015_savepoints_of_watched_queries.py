"""Add savepoints of watched queries: where a cluster stores them, and the copies in progress."""

import django.db.models.deletion
from django.db import migrations, models

import monitoring.reasons.columns


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0014_watched_queries")]

    operations = [
        migrations.AddField("cluster", "savepoint_target", models.CharField(blank=True, default="", max_length=500)),
        migrations.CreateModel(
            name="LocationCopy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("query_id", models.CharField(max_length=32)),
                ("trigger_id", models.CharField(max_length=32, unique=True)),
                ("location", models.TextField()),
                ("target", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("copying", "Copying"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                        ],
                        default="queued",
                        max_length=10,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("leftovers", models.BooleanField(default=False)),
                ("path", models.TextField(blank=True, default="")),
                ("failure", models.TextField(blank=True, default="")),
                ("failure_value", monitoring.reasons.columns.ReasonField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="location_copies",
                        to="monitoring.cluster",
                    ),
                ),
            ],
        ),
    ]
