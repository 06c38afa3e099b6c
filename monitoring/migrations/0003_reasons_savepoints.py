"""Codes and arguments of the reasons of savepoints and of what periodic tasks report."""

import monitoring.reasons.columns
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0002_reasons"),
    ]

    operations = [
        migrations.AddField(
            model_name=model,
            name=f"{column}_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        )
        for model, column in (
            ("checkedstate", "problem"),
            ("savepoint", "disposal_reason"),
            ("savepoint", "failure"),
            ("savepoint", "problem"),
            ("stateread", "problem"),
            ("tick", "sentence"),
        )
    ]
