"""Savepoints of watched queries: Waymark copies their locations despite failures of the workers and the storage."""

from __future__ import annotations

import errno
import json
import os
import pydoc
import shutil
import signal
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from checkpointing.storage import verify
from checkpointing.storage.files import LocalFiles
from monitoring.engine.connection import connection_of
from monitoring.models import (
    Cluster,
    CopyState,
    Discovery,
    Job,
    LocationCopy,
    QuerySource,
    Run,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
    WatchedQuery,
)
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.refusals import RefusalReason
from monitoring.savepoints import copies
from monitoring.savepoints.copies import AT_ONCE, CLAIM, KEPT, TRIES, forget_ended, take_up
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.retention_actions import dispose
from monitoring.savepoints.schedule import set_schedule
from monitoring.savepoints.timetable import Every
from tests.checkpointing.coordinator.sigkill import is_killed_at
from tests.checkpointing.spark.recordings import unpacked
from tests.checkpointing.spark.test_imported import fingerprint
from tests.profile import PROFILE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    """Return a watched root with one query, `counts`. Savepoints go to the directory `savepoints` next to it."""
    settings.STATE_ROOTS = (str(tmp_path),)
    recording = unpacked("count in rocksdb format 2", tmp_path / "unpacked")
    (tmp_path / "root").mkdir()
    recording.location.rename(tmp_path / "root" / "counts")
    (tmp_path / "savepoints").mkdir()
    return tmp_path / "root"


@pytest.fixture
def target(root: Path) -> Path:
    return root.parent / "savepoints"


@pytest.fixture
def job(rows: Any, root: Path, target: Path) -> Job:
    query_id = uuid.UUID(json.loads((root / "counts/metadata").read_text())["id"]).hex
    found = {"query_id": query_id, "started_ms": 0, "state": "RUNNING", "moved_ms": 0}
    scan = {"found": {"counts": found}, "position": None, "passes": 1, "ended_ms": 0, "problems": [], "lost": False}
    cluster = rows.cluster(
        discovery=Discovery.DIRECTORY, rest_url=str(root), savepoint_target=str(target), scan=scan, engine="streaming"
    )
    job = rows.job(cluster, name="counts")
    rows.run(job, engine_job_id=query_id)
    return Job.objects.select_related("cluster", "current_run").get(pk=job.pk)


@pytest.fixture
def savepoint(job: Job, now: datetime) -> Savepoint:
    return request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)


def after(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def settle(savepoint: Savepoint, now: datetime) -> Savepoint:
    """Run cycles and the copies that they begin, until the savepoint's row is settled."""
    for tick in range(1, 60):
        advance(after(now, 5 * tick))
        wait_for_copies()
        savepoint.refresh_from_db()
        if not SavepointState(savepoint.state).open:
            return savepoint
    raise AssertionError(savepoint.state)


def wait_for_copies() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(("saves ", "renews ")):
            thread.join(60)


def requested(savepoint: Savepoint) -> LocationCopy:
    """Return the stored request, as the transport stores it, and no worker's claim."""
    run = savepoint.run
    cluster = savepoint.job.cluster
    return LocationCopy.objects.create(
        cluster=cluster,
        query_id=run.engine_job_id,
        trigger_id=savepoint.trigger_id,
        location=f"{cluster.rest_url}/counts",
        target=cluster.savepoint_target,
    )


def test_a_savepoint_is_taken_checked_and_deleted_without_an_engine(
    savepoint: Savepoint, root: Path, target: Path, now: datetime
) -> None:
    before = fingerprint(root)
    done = settle(savepoint, now)
    checkpoint = verify(done.path, deep=True)
    assert (done.state, done.failure, done.size) == (SavepointState.COMPLETED, "", checkpoint.state_size)
    assert (checkpoint.batches, checkpoint.entry_class) == ({"": 4}, "")
    assert [path.name for path in target.iterdir()] == [Path(done.path).name]

    Savepoint.objects.update(next_check_at=after(now, 300))
    advance(after(now, 300))
    done.refresh_from_db()
    assert (done.checked_at, done.problem) == (after(now, 300), "")

    newer = settle(request_savepoint(savepoint.job, SavepointOrigin.MANUAL, "ada", after(now, 400)), after(now, 400))
    assert newer.state == SavepointState.COMPLETED
    dispose(done, "", "ada", after(now, 900))
    advance(after(now, 900))
    done.refresh_from_db()
    assert done.state == SavepointState.DISPOSED
    assert [str(path) for path in target.iterdir()] == [newer.path]
    assert fingerprint(root) == before


def test_the_directory_saves_a_query_whose_job_another_cluster_leads(
    job: Job, rows: Any, target: Path, now: datetime
) -> None:
    query = WatchedQuery.objects.create(query_id=job.current_run.engine_job_id, job=job)
    QuerySource.objects.create(query=query, cluster=job.cluster, engine_job_id=query.query_id, name="counts")
    agent = rows.cluster(name="agent", discovery=Discovery.AGENT, rest_url="", engine="streaming")
    Job.objects.update(cluster=agent)
    Run.objects.update(engine_job_id=uuid.uuid4().hex)
    led = Job.objects.select_related("cluster", "current_run").get(pk=job.pk)
    done = settle(request_savepoint(led, SavepointOrigin.MANUAL, "ada", now), now)
    assert (done.state, done.failure) == (SavepointState.COMPLETED, "")
    assert [str(path) for path in target.iterdir()] == [done.path]
    Cluster.objects.filter(discovery=Discovery.DIRECTORY).update(savepoint_target="")
    with pytest.raises(SavepointDeferred) as deferred:
        request_savepoint(led, SavepointOrigin.MANUAL, "ada", after(now, 400))
    assert deferred.value.reason == EngineReason.ONLY_WATCHED()


def test_a_schedule_saves_a_watched_query(job: Job, target: Path, now: datetime) -> None:
    set_schedule(job, Every(3600), "ada", now)
    Job.objects.update(next_savepoint_at=now)
    Cluster.objects.update(last_answer_at=now)
    advance(now)
    assert settle(Savepoint.objects.get(), now).state == SavepointState.COMPLETED


def test_an_idle_query_is_saved_by_a_person_and_not_by_a_schedule(job: Job, now: datetime) -> None:
    assert job.current_run is not None
    job.current_run.state = RunState.RECONCILING
    job.current_run.save()
    with pytest.raises(SavepointDeferred, match="the job is RECONCILING, not RUNNING"):
        request_savepoint(job, SavepointOrigin.SCHEDULED, "waymark", now)
    assert settle(request_savepoint(job, SavepointOrigin.MANUAL, "ada", now), now).state == SavepointState.COMPLETED


def test_a_query_is_never_stopped(job: Job, now: datetime) -> None:
    with pytest.raises(SavepointDeferred) as refused:
        request_savepoint(job, SavepointOrigin.MANUAL, "ada", now, stops_job=True)
    assert refused.value.reason == EngineReason.ONLY_SAVED()


def test_without_a_target_nothing_is_saved(job: Job, now: datetime) -> None:
    Cluster.objects.update(savepoint_target="")
    job.refresh_from_db()
    with pytest.raises(SavepointDeferred) as refused:
        request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    assert refused.value.reason == EngineReason.ONLY_WATCHED()
    assert connection_of(Cluster.objects.get()).saves_to == ""


def test_two_requests_with_one_trigger_id_make_one_savepoint(savepoint: Savepoint, target: Path, now: datetime) -> None:
    advance(now)
    wait_for_copies()
    Savepoint.objects.update(posted_at=None, state=SavepointState.REQUESTED, next_check_at=now)
    assert settle(savepoint, now).state == SavepointState.COMPLETED
    assert len(list(target.iterdir())) == LocationCopy.objects.count() == 1


def test_two_workers_at_once_make_one_copy(savepoint: Savepoint, target: Path, now: datetime) -> None:
    copy = requested(savepoint)
    same = LocationCopy.objects.get(pk=copy.pk)
    assert copies._claim(copy, now)
    assert not copies._claim(same, now)
    assert take_up(now) == []


def no_rights(target: Path) -> None:
    shutil.rmtree(target)
    target.parent.joinpath("file").write_text("")
    target.symlink_to(target.parent / "file")


def linked_into_root(target: Path) -> None:
    shutil.rmtree(target)
    target.symlink_to(target.parent / "root")


def linked_elsewhere(target: Path) -> None:
    shutil.rmtree(target)
    target.symlink_to("/var")


def of_another_query(target: Path) -> None:
    metadata = target.parent / "root/counts/metadata"
    metadata.unlink()
    metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))


def without_commits(target: Path) -> None:
    shutil.rmtree(target.parent / "root/counts/commits")


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (shutil.rmtree, "watched.target-missing"),
        (no_rights, "watched.target-missing"),
        (linked_into_root, "watched.target-inside"),
        (linked_elsewhere, "watched.target-not-allowed"),
        (of_another_query, "imports.of-another-query"),
        (without_commits, "imports.no-batch"),
    ],
)
def test_a_problem_is_the_reason_of_the_failure_and_leaves_no_files(
    savepoint: Savepoint, root: Path, target: Path, now: datetime, problem: Callable[[Path], None], code: str
) -> None:
    problem(target)
    before = fingerprint(root.parent)
    failed = settle(savepoint, now)
    assert failed.failure_value is not None, failed.failure
    assert (failed.state, failed.failure_value.code.value) == (SavepointState.FAILED, code)
    assert fingerprint(root.parent) == before
    assert not LocationCopy.objects.get().leftovers


STEPS = [
    "monitoring.savepoints.copies._saved",
    "checkpointing.spark.imported._copied",
    "checkpointing.spark.imported._check_copy",
    "checkpointing.storage.checkpoint_storage.FileCheckpointStorage.initialize_location",
    "checkpointing.storage.files.LocalFiles.put",
    "checkpointing.storage.files.LocalFiles.make_durable",
    "checkpointing.storage.checkpoint_storage.FileCheckpointStorage.write_metadata",
    "checkpointing.storage.files.LocalFiles.write_durably",
]


def killed_at(step: str, copy: LocationCopy, *, after_it: bool) -> None:
    """Copy in a process that is killed when it reaches `step`, or has done it."""
    connection.close()
    child = os.fork()
    if child == 0:
        owner, _, function = step.rpartition(".")
        held = pydoc.locate(owner)
        original = getattr(held, function)

        def dying(*args: Any, **options: Any) -> Any:
            if after_it:
                original(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(held, function, dying)
        copies._make(copy)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.parametrize("after_it", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_worker_leaves_no_half_savepoint_and_another_one_finishes(
    savepoint: Savepoint, root: Path, target: Path, now: datetime, step: str, after_it: bool
) -> None:
    before = fingerprint(root)
    copy = requested(savepoint)
    assert copies._claim(copy, now)
    killed_at(step, copy, after_it=after_it)
    for left in target.glob("*/_metadata"):
        assert verify(str(left.parent), deep=True)
    assert take_up(now) == []

    [ended] = take_up(now + 2 * CLAIM)
    assert ended.wait(60)
    copy.refresh_from_db()
    assert (copy.state, copy.tries) == (CopyState.COMPLETED, 2)
    assert [str(path) for path in target.iterdir()] == [copy.path]
    assert verify(copy.path, deep=True).batches == {"": 4}
    assert fingerprint(root) == before


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_worker_killed_at_any_change_of_the_disk_leaves_no_half_savepoint(
    savepoint: Savepoint, root: Path, target: Path, now: datetime
) -> None:
    before = fingerprint(root)
    copy = requested(savepoint)
    step, was_killed = 0, True
    while was_killed:
        connection.close()
        LocationCopy.objects.update(state=CopyState.QUEUED, tries=0, claimed_until=None, path="", ended_at=None)
        copy.refresh_from_db()
        assert copies._claim(copy, now)
        connection.close()
        was_killed = is_killed_at(step, target, partial(copies._make, copy))
        for left in target.glob("*/_metadata"):
            assert verify(str(left.parent), deep=True)
        if was_killed:
            [ended] = take_up(now + 2 * CLAIM)
            assert ended.wait(60)
        copy.refresh_from_db()
        assert [str(path) for path in target.iterdir()] == [copy.path], step
        assert verify(copy.path, deep=True).batches == {"": 4}
        shutil.rmtree(copy.path)
        step += PROFILE.kill_every
    assert step > 40
    assert fingerprint(root) == before


def test_a_copy_that_takes_the_place_of_a_killed_one_removes_what_that_one_left(
    savepoint: Savepoint, root: Path, target: Path, now: datetime
) -> None:
    """The first worker dies after it has written a whole savepoint, and before it has stored that."""
    copy = requested(savepoint)
    assert copies._claim(copy, now)
    left = copies._saved(copy)  # a killed worker may have done all of this
    copies._scratch(left.location).mkdir()
    assert verify(left.location)
    assert take_up(now) == []

    [ended] = take_up(now + 2 * CLAIM)
    assert ended.wait(60)
    wait_for_copies()
    copy.refresh_from_db()
    assert (copy.state, copy.tries) == (CopyState.COMPLETED, 2)
    assert [str(path) for path in target.iterdir()] == [copy.path]
    assert copy.path != left.location


def test_a_worker_that_lost_its_claim_completes_nothing(savepoint: Savepoint, target: Path, now: datetime) -> None:
    copy = requested(savepoint)
    assert copies._claim(copy, now)
    LocationCopy.objects.update(tries=2)  # another worker holds the claim
    copies._make(copy)
    assert not list(target.iterdir())
    assert LocationCopy.objects.get().state == CopyState.COPYING


def test_a_savepoint_that_was_given_up_is_not_completed(savepoint: Savepoint, target: Path, now: datetime) -> None:
    copy = requested(savepoint)
    assert copies._claim(copy, now)
    Savepoint.objects.update(state=SavepointState.FAILED)
    copies._make(copy)
    assert not list(target.iterdir())
    assert LocationCopy.objects.get().state == CopyState.FAILED


def test_a_copy_whose_workers_die_again_and_again_is_given_up(
    savepoint: Savepoint, target: Path, now: datetime
) -> None:
    copy = requested(savepoint)
    for _ in range(TRIES):
        assert copies._claim(copy, now)
        copies._saved(copy)
    assert len(list(target.iterdir())) == TRIES
    failed = settle(savepoint, now + 2 * CLAIM)
    assert failed.failure_value == RefusalReason.COPY_STOPPED(location=copy.location, count=TRIES)
    assert not list(target.iterdir())


def test_files_that_cannot_be_removed_are_removed_later(savepoint: Savepoint, target: Path, now: datetime) -> None:
    copy = requested(savepoint)
    assert copies._claim(copy, now)
    left = Path(copies._saved(copy).location)
    LocationCopy.objects.update(claimed_until=now)
    target.rename(target.with_name("away"))
    target.write_text("a file where the storage was mounted")
    failed = settle(savepoint, now)
    assert failed.failure_value is not None
    assert failed.failure_value.code.value == "watched.not-saved"
    assert LocationCopy.objects.get().leftovers

    target.unlink()
    target.with_name("away").rename(target)
    assert left.exists()
    LocationCopy.objects.update(claimed_until=now)
    [ended] = take_up(after(now, 1))
    assert ended.wait(60)
    assert not LocationCopy.objects.get().leftovers
    assert not list(target.iterdir())


@pytest.mark.parametrize("name", ["get", "put", "write_durably"])
def test_a_full_disk_is_reported_and_leaves_no_files(
    savepoint: Savepoint, target: Path, now: datetime, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFiles, name, full)
    failed = settle(savepoint, now)
    assert "No space left on device" in failed.failure
    assert not list(target.iterdir())


def test_a_target_without_rights_is_reported(
    savepoint: Savepoint, root: Path, settings: Settings, now: datetime
) -> None:
    """Not even root can create a directory in /sys/kernel."""
    settings.STATE_ROOTS = (*settings.STATE_ROOTS, "/sys/kernel")
    Cluster.objects.update(savepoint_target="/sys/kernel")
    failed = settle(savepoint, now)
    assert failed.failure_value is not None, failed.failure
    assert failed.failure_value.code.value == "watched.not-saved"
    assert failed.failure_value.args["target"] == "/sys/kernel"
    assert not LocationCopy.objects.get().leftovers


def test_a_storage_that_hangs_occupies_only_the_places_of_its_cluster(
    savepoint: Savepoint, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    saved = copies._saved
    monkeypatch.setattr(copies, "_saved", lambda copy: (go.wait(60), saved(copy))[1])
    first = requested(savepoint)
    for number in range(3):
        LocationCopy.objects.create(
            cluster=first.cluster,
            query_id=first.query_id,
            trigger_id=f"{number}" * 32,
            location=first.location,
            target=first.target,
        )
    begun = take_up(now)
    assert len(begun) == AT_ONCE
    assert take_up(now + 2 * CLAIM) == []
    go.set()
    assert all(ended.wait(60) for ended in begun)


def test_ended_copies_are_forgotten(savepoint: Savepoint, now: datetime) -> None:
    copy = requested(savepoint)
    assert forget_ended(now + 2 * KEPT) == 0
    LocationCopy.objects.update(state=CopyState.COMPLETED, ended_at=now)
    assert forget_ended(now + KEPT / 2) == 0
    assert forget_ended(now + 2 * KEPT) == 1
    assert not LocationCopy.objects.filter(pk=copy.pk).exists()
