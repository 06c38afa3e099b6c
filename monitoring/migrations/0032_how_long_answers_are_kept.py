"""A Flink tells for how long it answers the same of a job's checkpoints; asked for when jobs come or go."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0031_baselines_of_every_figure"),)

    operations = (migrations.AddField("cluster", "answers_kept_s", models.FloatField(null=True)),)
