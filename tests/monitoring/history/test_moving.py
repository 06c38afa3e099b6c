"""Spark compares the files that it writes with the rows, and notices every difference."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monitoring.history.archive import due, spans
from monitoring.history.archive.moving import Mover
from monitoring.history.catalogue import day_range
from monitoring.history.pipeline import moving
from monitoring.models import ArchivedFile, ArchivedState, Checkpoint, Run
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import NOW, OLD, advance, everything, fill
from tests.monitoring.history.conftest import Pipeline
from tests.monitoring.reported import NOTHING

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_rows_that_differ_only_in_which_value_is_missing_have_different_hashes(spark: Any) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.list_(pa.int64()))])
    rows = [(1, None, [1, None]), (None, 1, [1, None]), (1, None, [None, 1]), (1, None, None)]
    digests = {moving._digest(spark.createDataFrame([row], "a long, b long, c array<long>"), schema) for row in rows}
    assert len(digests) == len(rows)


def moved(mover: Mover) -> list[ArchivedFile]:
    piece = spans.pieces_of(spans.due(NOW)[0])[0]
    return mover.move(piece.month, piece.partition, [day_range(day) for day in piece.days])


@pytest.fixture
def run(old: Rows, pipeline: Pipeline) -> Run:
    made = fill(old, 12, timedelta(minutes=55))
    pipeline.run()
    return made


def test_a_row_that_changes_between_the_two_readings_is_noticed(run: Run, mover: Mover, monkeypatch) -> None:
    describe = moving._described

    def and_change(*args: Any) -> Any:
        Checkpoint.objects.filter(run=run, checkpoint_id=3).update(external_path="file:/elsewhere")
        return describe(*args)

    with monkeypatch.context() as patched:
        patched.setattr(moving, "_described", and_change)
        with pytest.raises(
            moving.MoveFailed, match="12 rows were written, but the table now has 12 rows or other values"
        ):
            moved(mover)
    assert set(ArchivedFile.objects.values_list("state", flat=True)) == {ArchivedState.GOING}
    before = everything()
    assert advance() != NOTHING
    assert everything() == before


def test_a_file_that_differs_from_its_rows_is_named(run: Run, mover: Mover, archive: Path, monkeypatch) -> None:
    describe = moving._described

    def after_damage(*args: Any) -> Any:
        (file,) = archive.rglob("*.parquet")
        file.write_bytes(file.read_bytes()[:-9] + b"damaged!!")
        return describe(*args)

    monkeypatch.setattr(moving, "_described", after_damage)
    with pytest.raises(moving.MoveFailed, match=r"month=2026-08/\w+-0\.parquet does not have the content"):
        moved(mover)


def test_files_are_divided_by_run_and_described_exactly(
    old: Rows, pipeline: Pipeline, mover: Mover, monkeypatch
) -> None:
    job = old.job()
    runs = [old.run(job, started_at=OLD) for _ in range(3)]
    for run in runs:
        for number in range(4):
            old.checkpoint(run, number + 1, triggered_at=OLD + timedelta(minutes=number), final=True)
    pipeline.run()
    monkeypatch.setattr(due, "ROWS_A_FILE", 4)
    files = sorted(moved(mover), key=lambda file: file.least_id)
    assert sum(file.rows for file in files) == 12
    assert [run for file in files for run in file.runs] == [run.pk for run in runs]
    for file in files:
        assert file.rows_by_run == [file.rows // len(file.runs)] * len(file.runs)
        assert (file.since, file.until) == (OLD, OLD + timedelta(minutes=3, microseconds=1))
        rows = Checkpoint.objects.filter(run__in=file.runs)
        assert (file.least_id, file.greatest_id) == _ends(rows.values_list("pk", flat=True))
        assert file.month == date(2026, 8, 1)


def _ends(values: Any) -> tuple[int, int]:
    return min(values), max(values)
