"""Add which job a watched query belongs to, and through which clusters Waymark sees it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0013_failures_of_tasks")]

    operations = [
        migrations.CreateModel(
            name="WatchedQuery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("query_id", models.CharField(max_length=32, unique=True)),
                ("job", models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name="watched_queries", to="monitoring.job")),
            ],
        ),
        migrations.CreateModel(
            name="QuerySource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("engine_job_id", models.CharField(max_length=32)),
                ("name", models.CharField(max_length=500)),
                ("state", models.CharField(max_length=20)),
                ("moved_at", models.DateTimeField(null=True)),
                ("cluster", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="query_sources", to="monitoring.cluster")),
                ("query", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="sources", to="monitoring.watchedquery")),
            ],
        ),
        migrations.AddIndex(
            model_name="querysource",
            index=models.Index(fields=["cluster", "name"], name="query_sources_by_name"),
        ),
        migrations.AddConstraint(
            model_name="querysource",
            constraint=models.UniqueConstraint(fields=("cluster", "query"), name="one_source_per_cluster_and_query"),
        ),
    ]
