"""If hourly roll-ups and checkpoints are deleted from PostgreSQL, pages show whole days and say so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from monitoring.history.forgetting import forget
from monitoring.models import Job
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import MOVED, NOW, OLD, advance, fill
from tests.monitoring.history.conftest import Pipeline, archive, dsn_file, old, pipeline

__all__ = ["archive", "dsn_file", "old", "pipeline"]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
SAID = "Only whole UTC days are shown: hourly roll-ups are kept for 45 days."
# Sixty checkpoints from noon on 13 August, of which six failed: 33 completed on the 13th and 21 on the 14th.
PART = {"since": (OLD + timedelta(hours=2)).isoformat(), "until": (OLD + timedelta(hours=4)).isoformat()}


@pytest.fixture
def job(old: Rows, pipeline: Pipeline) -> Job:
    run = fill(old, 60)
    pipeline.run()
    return run.job


def get(viewer: Client, job: Job, page: str, asked: dict[str, str]) -> Any:
    return viewer.get(f"/jobs/{job.pk}/{page}", asked)


def test_without_hourly_roll_ups_figures_come_from_the_checkpoints(viewer: Client, job: Job) -> None:
    forget(NOW)
    shown = get(viewer, job, "summary/", PART)
    assert shown.context["summary"].completed == 6
    assert SAID not in shown.content.decode()


@pytest.mark.nightly
def test_archived_checkpoints_are_counted_by_whole_days(viewer: Client, job: Job, archive: Path) -> None:
    forget(NOW)
    assert advance() == MOVED
    shown = get(viewer, job, "summary/", PART)
    assert shown.context["summary"].completed == 33
    assert SAID in shown.content.decode()
    assert "whole UTC days" in get(viewer, job, "", PART).content.decode()
    assert "whole UTC days" in b"".join(get(viewer, job, "download/summary.csv", PART).streaming_content).decode()
    chart = get(viewer, job, "charts/durations.json", PART).json()
    assert "each UTC day of 36 checkpoints" in chart["note"]
    assert SAID in chart["note"]
    assert SAID in get(viewer, job, "charts/durations/table/", PART).content.decode()
    month = {"since": (OLD - timedelta(days=9)).isoformat(), "until": (OLD + timedelta(days=9)).isoformat()}
    assert get(viewer, job, "summary/", month).context["summary"].completed == 54


def test_figures_of_whole_days_do_not_need_the_archive(viewer: Client, job: Job, archive: Path) -> None:
    forget(NOW)
    advance()
    for file in archive.rglob("*.parquet"):
        file.unlink()
    assert get(viewer, job, "summary/", PART).context["summary"].completed == 33
