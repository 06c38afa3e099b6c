"""What is usual for a job at an hour of the week, as rules that compare with it judged by."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0035_what_comes_late"),)

    operations = (
        migrations.CreateModel(
            name="HourlyBaseline",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("figure", models.CharField(max_length=30)),
                ("day", models.DateField()),
                ("weeks", models.PositiveSmallIntegerField()),
                (
                    "p95s",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(null=True), size=24
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="hourly_baselines", to="monitoring.job"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "weeks", "figure", "job"),
                        name="one_hourly_baseline_per_figure_job_day_and_weeks",
                    )
                ]
            },
        ),
    )
