"""Claims have tokens, reads a rhythm instead of stored moments, and what workers remember has a revision."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0007_savepoint_retention"),
    ]

    operations = [
        migrations.AddField("cluster", "poll_claimed_by", models.CharField(blank=True, default="", max_length=32)),
        migrations.AddField("cluster", "read_until", models.DateTimeField(null=True)),
        migrations.AddField("cluster", "revision", models.BigIntegerField(default=0)),
        migrations.AddField("run", "moved_at", models.DateTimeField(null=True)),
    ]
