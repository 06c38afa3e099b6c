"""A budget of none said what "restart automatically" is there for; it is refused from now on."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.functions import Greatest


def switch_off_budgets_of_none(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Such a job was never restarted by itself, nor is it now."""
    jobs = apps.get_model("monitoring", "Job").objects.using(editor.connection.alias)
    jobs.filter(models.Q(max_restarts_per_hour=0) | models.Q(max_restarts_per_day=0)).update(
        auto_restart=False,
        max_restarts_per_hour=Greatest("max_restarts_per_hour", 1),
        max_restarts_per_day=Greatest("max_restarts_per_day", 1),
    )


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0026_rollups"),)

    operations = (
        migrations.RunPython(switch_off_budgets_of_none, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(max_restarts_per_day__gte=1, max_restarts_per_hour__gte=1),
                name="a_restart_budget_of_at_least_one",
            ),
        ),
    )
