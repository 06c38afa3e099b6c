"""Add the kinds "note" and "reopened" of the events of incidents. Only the choices change, not the column."""

from django.db import migrations, models

KINDS = [
    ("opened", "Opened"),
    ("changed", "Changed"),
    ("acknowledged", "Acknowledged"),
    ("snoozed", "Snoozed"),
    ("woken", "Snooze ended"),
    ("inhibited", "Hidden"),
    ("released", "No longer hidden"),
    ("note", "Note"),
    ("resolved", "Resolved"),
    ("reopened", "Reopened"),
]


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0004_kll_sketches")]

    operations = [
        migrations.AlterField("incidentevent", "kind", models.CharField(choices=KINDS, max_length=12)),
    ]
