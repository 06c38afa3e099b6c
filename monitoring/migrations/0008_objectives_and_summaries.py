"""Add objectives with their measurements, and the times of shift summaries of channels."""

import django.db.models.deletion
from django.db import migrations, models

JOB = "monitoring.job"
CASCADE = django.db.models.deletion.CASCADE


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0007_incident_cockpit")]

    operations = [
        migrations.AddField("channel", "summary_cron", models.CharField(blank=True, default="", max_length=100)),
        migrations.AddField("channel", "summary_time_zone", models.CharField(default="UTC", max_length=64)),
        migrations.AddField("channel", "summary_hours", models.PositiveSmallIntegerField(default=12)),
        migrations.AddField("channel", "next_summary_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField("delivery", "summary", models.JSONField(null=True)),
        migrations.CreateModel(
            name="Objective",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("selector", models.CharField(blank=True, default="", max_length=500)),
                ("percent", models.FloatField()),
                ("limit_ms", models.BigIntegerField()),
                ("days", models.PositiveSmallIntegerField(default=30)),
                (
                    "job",
                    models.OneToOneField(blank=True, null=True, on_delete=CASCADE, related_name="objective", to=JOB),
                ),
            ],
            options={
                "ordering": ("job_id", "selector"),
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("job", None)), fields=("selector",), name="one_objective_per_selector"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ObjectiveBudget",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=CASCADE, primary_key=True, related_name="budget", serialize=False, to=JOB
                    ),
                ),
                ("percent", models.FloatField()),
                ("limit_ms", models.BigIntegerField()),
                ("days", models.PositiveSmallIntegerField()),
                ("counted", models.BigIntegerField()),
                ("missed", models.BigIntegerField()),
                ("used_percent", models.FloatField(null=True)),
                ("measured_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="ObjectiveDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("limit_ms", models.BigIntegerField()),
                ("counted", models.BigIntegerField()),
                ("missed", models.BigIntegerField()),
                ("job", models.ForeignKey(on_delete=CASCADE, related_name="objective_days", to=JOB)),
            ],
            options={
                "indexes": [models.Index(fields=["day"], name="objective_days_by_day")],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "day"), name="one_objective_day_per_job")
                ],
            },
        ),
    ]
