"""Add the assignee of incidents, the runbooks of rules and of jobs by label, and the event "assigned"."""

from django.db import migrations, models

KINDS = [
    ("opened", "Opened"),
    ("changed", "Changed"),
    ("acknowledged", "Acknowledged"),
    ("snoozed", "Snoozed"),
    ("assigned", "Assigned"),
    ("woken", "Snooze ended"),
    ("inhibited", "Hidden"),
    ("released", "No longer hidden"),
    ("note", "Note"),
    ("resolved", "Resolved"),
    ("reopened", "Reopened"),
]


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0006_archive_months")]

    operations = [
        migrations.AddField("incident", "assigned_to", models.CharField(blank=True, default="", max_length=150)),
        migrations.AddField("alertrule", "runbook", models.CharField(blank=True, default="", max_length=1000)),
        migrations.CreateModel(
            "Runbook",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("selector", models.CharField(max_length=500, unique=True)),
                ("text", models.CharField(max_length=1000)),
            ],
            {"ordering": ("selector",)},
        ),
        migrations.AlterField("incidentevent", "kind", models.CharField(choices=KINDS, max_length=12)),
    ]
