"""Add columns for the codes and arguments of reasons. Existing rows keep only their text."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField

MAY_BE_LEFT_OUT = ("job", "notification")  # models whose `_value` may be missing in forms and in full_clean()


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0001_initial_0_2")]

    operations = [
        migrations.AddField(model, f"{column}_value", ReasonField(null=True, blank=model in MAY_BE_LEFT_OUT))
        for model, column in (
            ("auditentry", "reason"),
            ("checkedstate", "problem"),
            ("incident", "sentence"),
            ("incidentevent", "text"),
            ("job", "automation_note"),
            ("job", "breaker_reason"),
            ("job", "run_problem"),
            ("notification", "text"),
            ("notification", "why"),
            ("restartattempt", "error"),
            ("restartattempt", "reason"),
            ("restartdecision", "reason"),
            ("restartstep", "text"),
            ("savepoint", "disposal_reason"),
            ("savepoint", "failure"),
            ("savepoint", "problem"),
            ("stateread", "problem"),
            ("tick", "sentence"),
        )
    ]
