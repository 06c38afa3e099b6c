from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate

from monitoring import reasons
from monitoring.alerts import kinds
from monitoring.diagnosis import signs


class MonitoringConfig(AppConfig):
    name = "monitoring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        _import_reasons()
        pre_migrate.connect(_refuse_databases_in_between, sender=self)
        post_migrate.connect(_make_partitions, sender=self)


def _import_reasons() -> None:
    """Register the codes of all areas, rule kinds and signs, because rows with any of these codes may be read."""
    for package in (reasons, kinds, signs):
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")


def _refuse_databases_in_between(using: str, **_: Any) -> None:
    """Raise CommandError for a database with some of the replaced migrations: Django would take it for up to date."""
    from django.core.management import CommandError
    from django.db import connections
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connections[using])
    initial = loader.disk_migrations.get(("monitoring", "0001_initial_0_2"))
    replaced = [] if initial is None else initial.replaces  # tests clone a migrated database, and load no migration
    applied = [key for key in replaced if key in loader.applied_migrations]
    if 0 < len(applied) < len(replaced):
        raise CommandError(
            f"This database was made by a development version before Waymark 0.2. Its newest migration is "
            f"{applied[-1][1]}. Migrate it to {replaced[-1][1]} with the last commit that has that migration, then "
            "start this version. Nothing was changed."
        )


def _make_partitions(**_: Any) -> None:
    """Create missing partitions after a migration, so that they exist even if Waymark was off for a long time."""
    from monitoring import clock
    from monitoring.history.partitions import TABLES, make_ahead, partitions_of

    if partitions_of(TABLES[0]):
        make_ahead(clock.now())
