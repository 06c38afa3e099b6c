"""When a completed savepoint was found to be gone, removed by somebody else."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0040_removed_channels"),)

    operations = (migrations.AddField("savepoint", "gone_at", models.DateTimeField(null=True)),)
