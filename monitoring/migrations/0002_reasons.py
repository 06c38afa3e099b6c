"""Codes and arguments of reasons, beside the columns of their texts. Rows that stand there keep their text."""

import monitoring.reasons.columns
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0001_initial_0_2"),
    ]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="reason_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="incident",
            name="sentence_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="incidentevent",
            name="text_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="automation_note_value",
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="breaker_reason_value",
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="run_problem_value",
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="restartattempt",
            name="error_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="restartattempt",
            name="reason_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="restartdecision",
            name="reason_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
        migrations.AddField(
            model_name="restartstep",
            name="text_value",
            field=monitoring.reasons.columns.ReasonField(null=True),
        ),
    ]
