"""Add columns for the codes and arguments of further reasons. Existing rows keep their text."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField

OPTIONAL_IN_FORMS = ("cluster",)


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0002_reasons")]

    operations = [
        migrations.AddField(model, f"{column}_value", ReasonField(null=True, blank=model in OPTIONAL_IN_FORMS))
        for model, column in (
            ("archivedfile", "problem"),
            ("cluster", "last_error"),
            ("cluster", "leader_problem"),
            ("deliveryattempt", "answer"),
            ("runstatechange", "why"),
            ("stateread", "label"),
            ("stateread", "other_label"),
        )
    ]
