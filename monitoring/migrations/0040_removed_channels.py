"""Channels can be removed; their messages stay."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0039_seal_launch_secrets"),)

    operations = (
        migrations.AddField("channel", "removed_at", models.DateTimeField(editable=False, null=True)),
        migrations.AlterField("channel", "name", models.CharField(max_length=100)),
        migrations.AddConstraint(
            "channel",
            models.UniqueConstraint(
                fields=("name",), condition=models.Q(removed_at=None), name="one_channel_per_name"
            ),
        ),
    )
