"""Which storage did not answer when a restart looked for states to go on from."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0036_hourly_baselines"),)

    operations = (migrations.AddField("restartattempt", "silent", models.JSONField(default=list)),)
