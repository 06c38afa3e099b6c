"""Code and arguments of the texts of notifications, beside these. Rows that stand there keep their text."""

import monitoring.reasons.columns
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0002_reasons"),
    ]

    operations = [
        migrations.AddField(
            model_name="notification",
            name="text_value",
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="notification",
            name="why_value",
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
    ]
