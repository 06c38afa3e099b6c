"""A watched directory in the rows: its queries are jobs with runs and checkpoints, whichever worker polls."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from monitoring.models import Checkpoint, CheckpointGap, Cluster, Discovery, Engine, Job, Run, RunState
from monitoring.polling.poller import Poller
from monitoring.reasons.columns import stored
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.refusals import RefusalReason
from tests.checkpointing.watched.locations import Location
from tests.monitoring.polling.conftest import Workers


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


@pytest.fixture
def watched(root: Path, db: None) -> Cluster:
    return Cluster.objects.create(name="lake", discovery=Discovery.DIRECTORY, rest_url=str(root))


def location(path: Path) -> Location:
    return Location(path, start_ms=round(time.time() * 1000) - 60_000)


def due_again() -> None:
    """Let the next poll begin a new pass over the root."""
    cluster = Cluster.objects.get()
    Cluster.objects.update(scan=cluster.scan | {"ended_ms": 0})


def test_a_query_becomes_a_job_with_every_batch(root: Path, watched: Cluster, poll: Workers) -> None:
    query = location(root / "team/orders").run(0, 30, source={"topic": 3})
    query.begin(31)
    for _ in range(4):
        poll()
    watched.refresh_from_db()
    assert (watched.engine, watched.last_error, watched.history_length) == (Engine.STREAMING, "", None)
    run = Run.objects.get()
    assert (run.job.name, run.engine_job_id, run.state, run.number) == ("team/orders", query.id, "RUNNING", 1)
    assert run.counts["completed"] == 31
    assert run.position == {"batch": 30, "watermark": None, "sources": ['{"topic": 3}']}
    rows = Checkpoint.objects.order_by("checkpoint_id")
    assert [row.checkpoint_id for row in rows] == list(range(32))
    assert {row.status for row in rows[:31]} == {"COMPLETED"}
    assert (rows[30].end_to_end_duration, rows[30].final, rows[30].checkpointed_size) == (300, True, None)
    assert (rows[31].status, rows[31].end_to_end_duration) == ("IN_PROGRESS", None)
    query.commit(31)
    poll()
    poll()
    assert set(Checkpoint.objects.values_list("status", flat=True)) == {"COMPLETED"}


def test_batches_that_spark_deleted_between_two_polls_are_a_gap_with_their_number(
    root: Path, watched: Cluster, poll: Workers
) -> None:
    query = location(root / "fast").run(0, 5)
    for _ in range(3):
        poll()
    shutil.rmtree(query.path / "offsets")
    shutil.rmtree(query.path / "commits")
    query.run(300, 400)
    for _ in range(3):
        poll()
    gap = CheckpointGap.objects.get()
    assert (gap.first_id, gap.last_id) == (6, 299)
    assert Run.objects.get().counts["completed"] == 401


def test_another_worker_continues_the_scan_from_the_row(
    root: Path, watched: Cluster, poll: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.engine.watched.LISTINGS", 3)
    for number in range(12):
        location(root / f"{number:02}").run(0, 0)
    found = []
    for number in range(30):
        poll.stop()  # each tick runs in a new worker
        poll.tick(number % 2)
        poll.clock = poll.clock.replace(second=number)
        Cluster.objects.update(next_poll_at=None)
        found.append(len(Cluster.objects.get().scan["found"]))
        if Cluster.objects.get().scan["passes"]:
            break
    assert found == sorted(found)
    assert found[0] <= 3
    assert Job.objects.count() == 12


def test_a_job_with_a_deleted_location_is_lost_only_if_the_root_can_be_read(
    root: Path, watched: Cluster, poll: Workers
) -> None:
    location(root / "other").run(0, 1)
    query = location(root / "q").run(0, 1)
    for _ in range(2):
        poll()
    (root / "q").rename(root / ".q")
    (root / "other").rename(root / ".other")
    hidden = root.rename(root.with_name("hidden"))
    for _ in range(6):
        poll()
    watched.refresh_from_db()
    assert stored(watched, "last_error") == EngineReason.ROOT_MISSING(root=str(root))
    assert {run.state for run in Run.objects.all()} & {RunState.LOST} == set()
    hidden.rename(root)
    (root / ".other").rename(root / "other")
    due_again()
    for _ in range(8):
        poll()
    assert {run.job.name: run.state for run in Run.objects.all()} == {"other": "RUNNING", "q": "LOST"}
    (root / ".q").rename(query.path)
    due_again()
    for _ in range(3):
        poll()
    assert {run.state for run in Run.objects.all()} == {"RUNNING"}


def test_a_deleted_checkpoint_gives_the_job_its_next_run(root: Path, watched: Cluster, poll: Workers) -> None:
    old = location(root / "q").run(0, 9)
    for _ in range(2):
        poll()
    shutil.rmtree(old.path)
    new = location(root / "q").run(0, 2)
    for _ in range(8):
        poll()
    runs = Run.objects.order_by("number")
    assert [(run.number, run.engine_job_id, run.state) for run in runs] == [
        (1, old.id, "CANCELED"),
        (2, new.id, "RUNNING"),
    ]
    assert Job.objects.get().current_run == runs[1]
    assert [run.checkpoints.count() for run in runs] == [10, 3]


def test_an_older_copy_of_the_location_is_a_new_run_of_the_same_query(
    root: Path, watched: Cluster, poll: Workers
) -> None:
    query = location(root / "q").run(0, 9)
    for _ in range(2):
        poll()
    for batch in range(5, 10):
        (query.path / f"offsets/{batch}").unlink()
        (query.path / f"commits/{batch}").unlink()
    query.start_ms += 30_000
    query.run(5, 6)
    for _ in range(8):
        poll()
    runs = Run.objects.order_by("number")
    assert [(run.number, run.engine_job_id, run.superseded) for run in runs] == [
        (1, query.id, True),
        (2, query.id, False),
    ]
    rows = Checkpoint.objects.order_by("triggered_at")
    assert [row.checkpoint_id for row in rows.filter(run=runs[0])] == [5, 6, 7, 8, 9]
    assert [row.checkpoint_id for row in rows.filter(run=runs[1])] == [0, 1, 2, 3, 4, 5, 6]


def test_a_problem_of_one_location_is_stored_and_the_others_are_polled(
    root: Path, watched: Cluster, poll: Workers
) -> None:
    location(root / "good").run(0, 1)
    location(root / "bad").write("metadata", '{"id": "<script>"}')
    poll()
    poll()
    watched.refresh_from_db()
    assert stored(watched, "last_error") == RefusalReason.METADATA_DAMAGED(location=f"{root}/bad")
    assert [job.name for job in Job.objects.all()] == ["good"]
    assert watched.reachable


def test_polling_twice_changes_nothing(root: Path, watched: Cluster, poll: Workers) -> None:
    location(root / "q").run(0, 9)
    for _ in range(6):
        poll()
    before = list(Checkpoint.objects.order_by("pk").values())
    for _ in range(4):
        poll()
    assert list(Checkpoint.objects.order_by("pk").values()) == before
    with CaptureQueriesContext(
        connection,
    ) as queries:
        poll()
    assert len(queries) < 40
    assert isinstance(poll.worker(0), Poller)
