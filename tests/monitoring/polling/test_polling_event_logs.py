"""Event logs in the rows: their queries are jobs with runs, checkpoints and exceptions, whichever worker polls."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

import pytest
from pytest_django import Settings

from monitoring.models import Checkpoint, Cluster, Discovery, Engine, Job, Run, RunException
from monitoring.reasons.columns import stored
from monitoring.reasons.engines import EngineReason
from tests.checkpointing.eventlogs.logs import EventLog, header, job_end, progress, started, terminated
from tests.monitoring.polling.conftest import Workers

FIRST, SECOND = str(UUID(int=11)), str(UUID(int=12))


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


@pytest.fixture
def logs(root: Path, transactional_db: None) -> Cluster:
    return Cluster.objects.create(name="lake", discovery=Discovery.EVENT_LOG, rest_url=str(root))


def test_a_query_becomes_a_job_whose_restart_is_its_next_run(root: Path, logs: Cluster, poll: Workers) -> None:
    now = round(time.time() * 1000)
    start = now - 60_000
    log = EventLog(root, "app-1", codec="zstd", rolling=True)
    log.append(*header(), started(run=FIRST, at_ms=start), at_ms=now)
    poll()
    for number in range(5):
        log.append(progress(number, FIRST, start + number * 1000), at_ms=now)
        poll()
    log.append(job_end(start + 9_000), terminated("java.lang.BoomError: bad row", FIRST), at_ms=now)
    poll()
    second = EventLog(root, "app-2").append(*header(), started(run=SECOND, at_ms=start + 20_000), at_ms=now)
    second.append(progress(5, SECOND, start + 21_000), at_ms=now)
    for _ in range(3):
        poll()
    logs.refresh_from_db()
    assert (logs.engine, logs.last_error) == (Engine.STREAMING, "")
    assert Job.objects.get().name == "shop/orders"
    runs = Run.objects.order_by("number")
    assert [(run.engine_job_id, run.state) for run in runs] == [
        (UUID(FIRST).hex, "FAILED"),
        (UUID(SECOND).hex, "RUNNING"),
    ]
    assert [sorted(run.checkpoints.values_list("checkpoint_id", flat=True)) for run in runs] == [[*range(5)], [5]]
    row = Checkpoint.objects.get(checkpoint_id=3)
    assert (row.status, row.end_to_end_duration, row.final, row.checkpointed_size) == ("COMPLETED", 300, True, None)
    assert runs[1].counts == {"total": 1, "completed": 1, "in_progress": None, "failed": None, "restored": None}
    assert runs[0].position["sources"] == ["5"]
    exception = RunException.objects.get()
    assert (exception.run, exception.name) == (runs[0], "java.lang.BoomError")


def rows() -> tuple[object, ...]:
    runs = Run.objects.values_list("state", "moved_at", "counts", "position", "ended_at")
    return Cluster.objects.get().scan, list(Checkpoint.objects.order_by("pk").values()), list(runs)


def test_polling_without_news_changes_no_row(root: Path, logs: Cluster, poll: Workers) -> None:
    now = round(time.time() * 1000)
    EventLog(root).append(*header(), started(at_ms=now), progress(0, at_ms=now), at_ms=now)
    for _ in range(4):
        poll()
    before = rows()
    for _ in range(4):
        poll()
    assert rows() == before


def test_a_directory_that_is_gone_ends_no_run(root: Path, logs: Cluster, poll: Workers) -> None:
    now = round(time.time() * 1000)
    EventLog(root / "logs").append(*header(), started(at_ms=now), at_ms=now)
    Cluster.objects.update(rest_url=f"{root}/logs")
    poll()
    (root / "logs").rename(root / "away")
    for _ in range(4):
        poll()
    cluster = Cluster.objects.get()
    assert stored(cluster, "last_error") == EngineReason.ROOT_MISSING(root=f"{root}/logs")
    assert Run.objects.get().state == "RUNNING"
