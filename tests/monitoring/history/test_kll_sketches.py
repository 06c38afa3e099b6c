"""Roll-ups of earlier versions of Waymark are converted with their figures, also by a migration that was killed."""

from __future__ import annotations

import struct
from datetime import timedelta
from importlib import import_module
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection

from monitoring.history.pipeline.columns import FIGURES, VERSION
from monitoring.history.sketches import merged, quantiles
from monitoring.models import Rollup

migration = import_module("monitoring.migrations.0004_kll_sketches")

# What version 2 stored for these values.
RICE = {
    (5, 500, 500, 7000): "2900b600feffffffffffffffffffffffffffcfffffffffffffffff02",
    (0, 0, 3): "00001d00fcffffbf",
    (2**63 - 1,): "4404010002",
}
# Version 1: pairs of a range and a number of values; a larger number takes several pairs.
SEVENS = struct.pack("<HHHH", 49, 65_535, 49, 5)


@pytest.mark.parametrize("values", RICE)
def test_each_converted_value_is_within_the_width_of_its_bucket(values: tuple[int, ...]) -> None:
    found = merged([migration.converted(2, bytes.fromhex(RICE[values]), values[0], values[-1])])
    assert found.n == len(values)
    asked = [(n + 1) / len(values) for n in range(len(values))]
    assert quantiles(found, asked) == [pytest.approx(value, rel=0.021) for value in values]


def test_an_empty_sketch_stays_empty() -> None:
    assert migration.converted(2, b"", None, None) == b""


@pytest.fixture
def rollups(rows: Any) -> list[Rollup]:
    """Store roll-ups of both earlier versions and of the present one."""
    job, made = rows.job(), []
    for number in range(7):
        sketch = (SEVENS, bytes.fromhex(RICE[0, 0, 3]))[number % 2] if number < 6 else b"present"
        sketches = {f"{figure}_sketch": sketch for figure in FIGURES}
        bounds = {f"{figure}_{what}": value for figure in FIGURES for what, value in (("min", 0), ("max", 7))}
        counts = dict.fromkeys(("completed", "failed", "pending", "completed_savepoints", "failed_savepoints"), 1)
        start = rows.now + timedelta(hours=number)
        version = 1 + number % 2 if number < 6 else VERSION
        made.append(Rollup(job=job, seconds=3600, start=start, version=version, **counts, **bounds, **sketches))
    return Rollup.objects.bulk_create(made)


def test_old_sketches_are_converted_and_new_ones_do_not_change(rollups, monkeypatch) -> None:
    monkeypatch.setattr(migration, "_NEXT", migration._NEXT.replace("LIMIT 2000", "LIMIT 2"))
    with connection.schema_editor() as editor:
        migration.convert(None, editor)
    stored = list(Rollup.objects.order_by("start"))
    assert {each.version for each in stored} == {VERSION}
    assert [merged([each.state_size_sketch]).n for each in stored[:-1]] == [65_540, 3] * 3
    assert bytes(stored[-1].duration_sketch) == b"present"


@pytest.mark.django_db(transaction=True)
def test_a_killed_conversion_is_continued(rollups, monkeypatch) -> None:
    monkeypatch.setattr(migration, "_NEXT", migration._NEXT.replace("LIMIT 2000", "LIMIT 2"))
    real = migration.converted
    monkeypatch.setattr(migration, "converted", Mock(side_effect=[b""] * 3 * len(FIGURES) + [KeyboardInterrupt]))
    with connection.schema_editor(atomic=False) as editor:
        with pytest.raises(KeyboardInterrupt):
            migration.convert(None, editor)
        assert Rollup.objects.filter(version=VERSION).count() == 3  # one batch of two, and the row that was there
        monkeypatch.setattr(migration, "converted", real)
        migration.convert(None, editor)
    assert not Rollup.objects.exclude(version=VERSION).exists()
