"""A plain PySpark process runs a query. Waymark finds, polls and saves it, and only reads its files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from checkpointing.spark.spark_location import UNNAMED
from checkpointing.storage import verify
from monitoring import clock
from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Discovery,
    Job,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.polling.poller import Poller
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import request_savepoint
from tests.checkpointing.watched.foreign import foreign_process
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.django_db(transaction=True)]
OF_SPARK = {"metadata", "offsets", "commits", "sources", "state"}


def poll() -> None:
    with Poller(timezone.now) as poller:
        Cluster.objects.update(next_poll_at=None, read_until=None)
        poller.start_due()
        while poller.in_flight:
            poller.serve(30.0)


def requested() -> Savepoint | None:
    """Request a savepoint as soon as a poll has seen a committed batch."""
    poll()
    if not Checkpoint.objects.filter(status=CheckpointStatus.COMPLETED).exists():
        return None
    job = Job.objects.select_related("cluster", "current_run").get()
    return request_savepoint(job, SavepointOrigin.MANUAL, "ada", clock.now())


def completed(savepoint: Savepoint) -> bool:
    advance(clock.now() + timedelta(seconds=2))
    savepoint.refresh_from_db()
    assert savepoint.state != SavepointState.FAILED, savepoint.failure
    return savepoint.state == SavepointState.COMPLETED


def test_each_savepoint_is_complete_and_newer_than_the_one_before(
    tmp_path: Path, java_home: Path, settings: Settings
) -> None:
    settings.STATE_ROOTS = (str(tmp_path),)
    root, target = tmp_path / "root", tmp_path / "savepoints"
    root.mkdir()
    target.mkdir()
    Cluster.objects.create(name="lake", discovery=Discovery.DIRECTORY, rest_url=str(root), savepoint_target=str(target))
    batches: list[int] = []
    with foreign_process(root / "team/counts", tmp_path) as process, process.running():
        for _ in range(4):
            savepoint: Any = eventually("a savepoint is requested", requested)
            eventually("the savepoint is complete", lambda taken=savepoint: completed(taken))
            checkpoint = verify(savepoint.path, deep=True)
            batches.append(checkpoint.batches[UNNAMED])
            assert savepoint.size == checkpoint.state_size
    assert batches == sorted(batches)
    assert batches[-1] > batches[0]
    assert Savepoint.objects.filter(state=SavepointState.COMPLETED).count() == 4
    assert len(list(target.iterdir())) == 4
    assert {path.name for path in (root / "team/counts").glob("[!.]*")} <= OF_SPARK
    assert [path.name for path in root.iterdir()] == ["team"]
