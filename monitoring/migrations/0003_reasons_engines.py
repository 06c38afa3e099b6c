"""Codes and arguments of reasons, beside what engines and ZooKeeper came to. Rows that stand there keep their text."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField

MAY_BE_LEFT_OUT = ("cluster",)  # of forms and of model checks


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0002_reasons")]

    operations = [
        migrations.AddField(model, f"{column}_value", ReasonField(null=True, blank=model in MAY_BE_LEFT_OUT))
        for model, column in (
            ("cluster", "last_error"),
            ("cluster", "leader_problem"),
            ("runstatechange", "why"),
        )
    ]
