"""Add quiet hours of schedules, default settings of jobs, and the YAML texts that were applied."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0009_watched_directories")]

    operations = [
        migrations.AddField("job", "savepoint_quiet", models.CharField(blank=True, default="", max_length=11)),
        migrations.AddField("job", "settings_from", models.JSONField(blank=True, default=dict)),
        migrations.CreateModel(
            name="JobDefault",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("selector", models.CharField(max_length=500, unique=True)),
                ("priority", models.PositiveSmallIntegerField(default=0)),
                ("settings", models.JSONField(default=dict)),
            ],
            options={"ordering": ("priority", "selector")},
        ),
        migrations.CreateModel(
            name="AppliedText",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(blank=True, max_length=500, unique=True)),
                ("text", models.TextField(blank=True, default="")),
                ("applied_at", models.DateTimeField(null=True)),
                ("applied_by", models.CharField(blank=True, default="", max_length=150)),
                ("problems", models.JSONField(blank=True, default=list)),
            ],
        ),
    ]
