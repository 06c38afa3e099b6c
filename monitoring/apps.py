from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class MonitoringConfig(AppConfig):
    name = "monitoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        post_migrate.connect(_make_partitions, sender=self)


def _make_partitions(**_: Any) -> None:
    """An installation that was off for long has the partitions of today before anything runs."""
    from monitoring import clock
    from monitoring.history.partitions import TABLES, make_ahead, partitions_of

    if partitions_of(TABLES[0]):
        make_ahead(clock.now())
