"""Add directories of checkpoint locations as clusters, and the position of a watched query."""

from django.db import migrations, models

ENGINES = [
    ("unknown", "not known yet"),
    ("flink", "Apache Flink"),
    ("spark", "PySpark"),
    ("streaming", "Spark Structured Streaming"),
]
DISCOVERIES = [
    ("url", "by URL"),
    ("zookeeper", "through ZooKeeper"),
    ("directory", "by checkpoint locations of Spark"),
]


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0008_objectives_and_summaries")]

    operations = [
        migrations.AlterField(
            "cluster", "engine", models.CharField(choices=ENGINES, default="unknown", max_length=10)
        ),
        migrations.AlterField(
            "cluster", "discovery", models.CharField(choices=DISCOVERIES, default="url", max_length=10)
        ),
        migrations.AddField("cluster", "scan", models.JSONField(default=dict)),
        migrations.AddField("run", "position", models.JSONField(default=dict)),
    ]
