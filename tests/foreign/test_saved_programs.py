"""Queries of three versions of PySpark are saved while they run, and continue as jobs of a real job manager."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from checkpointing.spark.spark_location import UNNAMED
from checkpointing.storage import verify
from monitoring import clock
from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Job,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import request_savepoint
from tests.chaos.cluster import JobManagers
from tests.checkpointing.spark.conftest import Words
from tests.checkpointing.spark.test_scripts_of_spark import submit
from tests.foreign.foreign_programs import INSTALLED, PROGRAMS, VERSIONS, Place, foreign
from tests.foreign.watching import Waymark, until
from tests.storage_servers import StorageServer, s3_server
from tests.waiting import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.stack,
    pytest.mark.timeout(900),
    pytest.mark.django_db(transaction=True),
]

WORD_COUNTS = str(PROGRAMS / "word_counts.py")
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    name: f"org.apache.spark.sql.execution.streaming.state.{prefix}StateStoreProvider"
    for name, prefix in (("hdfs", "HDFSBacked"), ("rocksdb", "RocksDB"))
}


@pytest.fixture(scope="module")
def job_managers(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[JobManagers]:
    roots = str(tmp_path_factory.getbasetemp())
    managers = JobManagers(tmp_path_factory.mktemp("manager"), zookeeper_hosts="", WAYMARK_SAVEPOINT_ROOTS=roots)
    try:
        managers.start()
        yield managers
    finally:
        managers.stop()


@pytest.fixture
def words(tmp_path: Path) -> Words:
    made = Words(tmp_path / "in", tmp_path / "out")
    made.input.mkdir()
    made.output.mkdir()
    return made


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    """Yield an object store whose credentials this process has, as a worker has them."""
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def savepoints(tmp_path: Path, waymark: Waymark, settings: Settings) -> Path:
    """Return the directory for savepoints of the watched queries."""
    target = tmp_path / "savepoints"
    target.mkdir()
    save_to(waymark, str(target), settings)
    return target


def save_to(waymark: Waymark, target: str, settings: Settings) -> None:
    settings.STATE_ROOTS = (*settings.STATE_ROOTS, target)
    Cluster.objects.filter(pk=waymark.directory.pk).update(savepoint_target=target)


def saved(waymark: Waymark, place: Place, version: str, words: Words, store: str = "hdfs") -> Savepoint:
    """Run the foreign program, save it after some batches, and stop it."""
    words.write("0", ["a", "b", "a"])
    place = replace(place, settings={PROVIDER: PROVIDERS[store]})
    arguments = (WORD_COUNTS, str(words.input), str(words.output))
    with foreign(place, version, *arguments, waymark=waymark.variables), waymark.polling():
        until(waymark, "a batch", Checkpoint.objects.filter(status=CheckpointStatus.COMPLETED).exists)
        words.write("1", ["c"])
        until(waymark, "the next batch", lambda: _newest(place) >= 1)
        job = Job.objects.select_related("cluster", "current_run").get()
        savepoint = request_savepoint(job, SavepointOrigin.MANUAL, "ada", clock.now())
        eventually("the savepoint", lambda: completed(savepoint))
    return savepoint


def _newest(place: Place) -> int:
    return max(int(path.name) for path in place.checkpoints.glob("words/commits/[0-9]*"))


def completed(savepoint: Savepoint) -> bool:
    advance(clock.now() + timedelta(seconds=2))
    savepoint.refresh_from_db()
    assert savepoint.state != SavepointState.FAILED, savepoint.failure
    return savepoint.state == SavepointState.COMPLETED


@pytest.mark.parametrize(
    ("version", "store"),
    [(VERSIONS[0], "hdfs"), (VERSIONS[1], "rocksdb"), (INSTALLED, "hdfs"), (INSTALLED, "rocksdb")],
)
def test_a_saved_query_continues_under_waymark_with_its_state_and_history(
    version: str,
    store: str,
    place: Place,
    waymark: Waymark,
    savepoints: Path,
    words: Words,
    job_managers: JobManagers,
) -> None:
    savepoint = saved(waymark, place, version, words, store)
    assert verify(savepoint.path, deep=True).batches == {UNNAMED: 1}
    before = Job.objects.get()
    conf = ("--conf", "execution.checkpointing.interval=500ms")
    name = f"words of {version} {store}"
    moved = ["--name", name, "--from-savepoint", savepoint.path]
    job = submit(job_managers, WORD_COUNTS, *conf, *moved, "--", str(words.input), str(words.output))
    try:
        words.write("2", ["a", "d"])
        eventually("every word once", lambda: words.counts() == {"a": 3, "b": 1, "c": 1, "d": 1})
        Cluster.objects.create(name="waymark", rest_url=job_managers.client()._address)
        with waymark.polling():
            until(waymark, "the moved job", lambda: Job.objects.get(pk=before.pk).cluster.name == "waymark")
            newest = Checkpoint.objects.filter(run__engine_job_id=job, status=CheckpointStatus.COMPLETED)
            until(waymark, "its checkpoints", newest.exists)
    finally:
        job_managers.client().cancel(job)
    after = Job.objects.get(pk=before.pk)
    assert (after.name, after.created_at) == (name, before.created_at)
    runs = list(after.runs.order_by("number").values_list("number", "engine_job_id", "state"))
    assert [number for number, *_ in runs] == [1, 2]
    assert runs[0][2] in (RunState.CANCELED, RunState.FINISHED)
    assert runs[1][1:] == (job, RunState.RUNNING)
    assert set(after.runs.get(number=1).checkpoints.values_list("checkpoint_id", flat=True)) == {0, 1}
    assert Savepoint.objects.get().job == after


@pytest.mark.parametrize("version", [VERSIONS[0], INSTALLED])
def test_a_worker_saves_a_running_query_to_an_object_store(
    version: str,
    place: Place,
    waymark: Waymark,
    words: Words,
    s3: StorageServer,
    settings: Settings,
) -> None:
    save_to(waymark, s3.root, settings)
    savepoint = saved(waymark, place, version, words)
    assert savepoint.path.startswith(f"{s3.root}/savepoint-")
    checkpoint = verify(savepoint.path, deep=True)
    assert (checkpoint.batches, checkpoint.state_size) == ({UNNAMED: 1}, savepoint.size)
    assert not list(Path(tempfile.gettempdir()).glob("waymark-savepoint-*"))
