"""Store why a periodic task failed as a reason."""

from django.db import migrations

from monitoring.reasons.columns import ReasonField


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0012_event_logs")]

    operations = [migrations.AddField("tick", "failure_value", ReasonField(null=True))]
