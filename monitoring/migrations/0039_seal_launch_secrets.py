"""Seal the secrets of launch records, and mask those that stood within values of recorded configurations."""

from django.db import migrations, models

from monitoring.masking import hidden, shown
from checkpointing.masking import mask_value
from monitoring.models.sealed_json import SealedLaunchField

_LAUNCHES = (("Job", "launch"), ("LaunchVersion", "spec"), ("RestartAttempt", "launch"))


def seal(apps, schema_editor):
    for name, field in _LAUNCHES:
        for row in _rows(apps, name, field):
            row.save(update_fields=[field])


def open_again(apps, schema_editor):
    for name, field in _LAUNCHES:
        rows = apps.get_model("monitoring", name).objects
        for row in _rows(apps, name, field):
            rows.filter(pk=row.pk).update(**{field: models.Value(getattr(row, field), models.JSONField())})


def mask(apps, schema_editor):
    """Also so that the next poll, which masks by the same rules, finds no change."""
    for row in apps.get_model("monitoring", "JobConfiguration").objects.iterator():
        parts = {part: shown(values) for part, values in row.parts.items()}
        if parts != row.parts:
            row.parts = parts
            row.save(update_fields=["parts"])
    for row in apps.get_model("monitoring", "ConfigurationChange").objects.iterator():
        before, after = mask_value(row.key, row.before, hidden), mask_value(row.key, row.after, hidden)
        if (before, after) != (row.before, row.after):
            row.before, row.after = before, after
            row.save(update_fields=["before", "after"])


def _rows(apps, name, field):
    rows = apps.get_model("monitoring", name).objects.exclude(**{field: None})
    return rows.only("pk", field).iterator()


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0038_log_in_failures_without_names"),)

    operations = (
        migrations.AlterField("job", "launch", SealedLaunchField(blank=True, null=True)),
        migrations.AlterField("launchversion", "spec", SealedLaunchField()),
        migrations.AlterField("restartattempt", "launch", SealedLaunchField(null=True)),
        migrations.RunPython(seal, open_again),
        migrations.RunPython(mask, migrations.RunPython.noop),
    )
