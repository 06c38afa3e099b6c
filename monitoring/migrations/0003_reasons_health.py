"""Codes and arguments of what became of messages, and of archive files that cannot be read. Rows that stand there keep their text."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0002_reasons")]

    operations = [
        migrations.AddField("archivedfile", "problem_value", ReasonField(null=True)),
        migrations.AddField("deliveryattempt", "answer_value", ReasonField(null=True)),
    ]
