"""A job whose budget was none is not restarted by itself after the upgrade either; no row is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("monitoring", "0026_rollups")]
AFTER = [("monitoring", "0027_restart_budget")]


@pytest.fixture
def migrate(transactional_db: None) -> Iterator[Callable[[list[tuple[str, str]]], Any]]:
    def to(target: list[tuple[str, str]]) -> Any:
        MigrationExecutor(connection).migrate(target)
        return MigrationExecutor(connection).loader.project_state(target).apps

    yield to
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


def test_budgets_of_none_become_no_automatic_restart(migrate: Callable[[list[tuple[str, str]]], Any]) -> None:
    old = migrate(BEFORE)
    cluster = old.get_model("monitoring", "Cluster").objects.create(name="c", rest_url="http://127.0.0.1:1/")
    jobs = old.get_model("monitoring", "Job").objects
    for name, hour, day in (("none an hour", 0, 9), ("none a day", 3, 0), ("some", 3, 9)):
        jobs.create(cluster=cluster, name=name, auto_restart=True, max_restarts_per_hour=hour, max_restarts_per_day=day)
    rows = (
        migrate(AFTER)
        .get_model("monitoring", "Job")
        .objects.values_list("name", "auto_restart", "max_restarts_per_hour", "max_restarts_per_day")
    )
    assert set(rows) == {("none an hour", False, 1, 9), ("none a day", False, 3, 1), ("some", True, 3, 9)}
