"""Add directories of Spark's event logs as clusters."""

from django.db import migrations, models

DISCOVERIES = [
    ("url", "by URL"),
    ("zookeeper", "through ZooKeeper"),
    ("directory", "by checkpoint locations of Spark"),
    ("agent", "by the agent in programs of Spark"),
    ("event_log", "by event logs of Spark"),
]


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0011_agent_reports")]

    operations = [
        migrations.AlterField(
            "cluster", "discovery", models.CharField(choices=DISCOVERIES, default="url", max_length=10)
        ),
    ]
