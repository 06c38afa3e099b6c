"""A call with a key that asks an engine commits what it is about before it asks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0032_how_long_answers_are_kept"),)

    operations = (migrations.AddField("idempotentanswer", "about", models.JSONField(null=True)),)
