"""Roll-ups of hours end before checkpoints do; who had them for 400 days keeps them so long."""

from typing import Any

from django.db import migrations, models

BEFORE = 400


def keep_as_before(apps: Any, schema_editor: Any) -> None:
    apps.get_model("monitoring", "RollupProgress").objects.update(hours_kept=BEFORE)


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0029_zookeeper_access"),)

    operations = (
        migrations.AddField("rollupprogress", "program", models.PositiveSmallIntegerField(null=True)),
        migrations.AddField("rollupprogress", "hours_from", models.DateTimeField(null=True)),
        migrations.AddField("rollupprogress", "hours_kept", models.PositiveIntegerField(null=True)),
        migrations.RunPython(keep_as_before, migrations.RunPython.noop),
    )
