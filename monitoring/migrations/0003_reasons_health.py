"""Codes and arguments of answers to messages, problems of archived files, and labels. Older rows keep their text."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0002_reasons")]

    operations = [
        migrations.AddField("archivedfile", "problem_value", ReasonField(null=True)),
        migrations.AddField("deliveryattempt", "answer_value", ReasonField(null=True)),
        migrations.AddField("stateread", "label_value", ReasonField(null=True)),
        migrations.AddField("stateread", "other_label_value", ReasonField(null=True)),
    ]
