"""An archive on an S3 server works like a local one, and no row is lost if the server becomes unavailable."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpointing.storage.errors import StorageError
from checkpointing.storage.opening import files_for
from monitoring.history.archive import archiving, cycle, due, reading, rewriting, spans
from monitoring.history.archive.moving import Mover
from monitoring.history.partitions import cover
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, Run
from monitoring.reasons.work import WorkReason
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import MOVED, NOW, OLD, advance, everything, fill, take_partitions_back
from tests.monitoring.history.conftest import Pipeline
from tests.monitoring.reported import done
from tests.storage_servers import StorageServer, s3_server
from tests.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageServer]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(scope="module")
def way(server: StorageServer) -> Iterator[TcpProxy]:
    proxy = TcpProxy(server.environment["AWS_ENDPOINT_URL"].removeprefix("http://"))
    yield proxy
    proxy.close()


@pytest.fixture
def afar(server: StorageServer, way: TcpProxy, monkeypatch, settings, tmp_path: Path, spark: Any) -> str:
    """Configure an empty location on the server for the archive, and return it."""
    own = {"AWS_ENDPOINT_URL": f"http://{way.address}", "AWS_MAX_ATTEMPTS": "1"}
    for name, value in {**server.environment, **own}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)  # Spark's workers are older than this test
    settings.VAR_DIR = tmp_path / "var"
    settings.ARCHIVE = f"{server.root}/{uuid.uuid4().hex}"
    return str(settings.ARCHIVE)


@pytest.fixture
def run(afar: str, pipeline: Pipeline) -> Iterator[Run]:
    take_partitions_back()
    cover(OLD)
    made = fill(Rows(), 12)
    pipeline.run()
    yield made
    take_partitions_back()


def forget_copies(settings) -> None:
    shutil.rmtree(settings.VAR_DIR / "archive-cache", ignore_errors=True)


def test_remote_files_are_read_checked_and_merged(
    run: Run, afar: str, settings, monkeypatch, pipeline: Pipeline
) -> None:
    before = everything()
    with monkeypatch.context() as patched:
        patched.setattr(due, "ROWS_A_FILE", 5)
        assert advance() == MOVED
    assert ArchivedFile.objects.filter(kind="checkpoints").count() == 3
    assert everything() == before
    later = [cycle.advance(NOW + timedelta(days=30), budget_s=3600) for _ in range(6)]  # September begins
    merged = [reason for report in later for reason in report.done if reason.code is WorkReason.FILES_MERGED]
    assert merged == [WorkReason.FILES_MERGED(count=len(ArchivedKind))]
    assert everything() == before
    directory = f"{afar}/checkpoints/cluster={run.job.cluster_id}/month=2026-08"
    assert "manifest.json" in files_for(afar).names(directory)
    found = reading.checkpoints(run.job, [], None, upwards=True, limit=100)
    assert [each.checkpoint_id for each in found.checkpoints] == list(range(1, 13))
    assert cycle.check(NOW) == (ArchivedFile.objects.filter(state=ArchivedState.LIVE).count(), [])
    Rows().checkpoint(run, 500, triggered_at=OLD, end_to_end_duration=3, final=True)
    assert advance() == done(WorkReason.ARCHIVED_LATE(count=1))
    (file,) = ArchivedFile.objects.filter(kind="checkpoints", state=ArchivedState.LIVE)
    assert file.rows == 13
    advance()
    assert len([name for name in files_for(afar).names(directory) if name.endswith(".parquet")]) == 1


def test_a_lost_connection_during_archiving_loses_no_rows(run: Run, way: TcpProxy, settings, mover: Mover) -> None:
    before = everything()
    for word in ("move", "manifests"):
        steps = archiving.steps(spans.due(NOW)[0], mover)
        while not next(steps).startswith(word):
            pass
        way.cut()
        with pytest.raises((StorageError, OSError)):
            for _ in steps:
                pass
        way.heal()
        assert everything() == before
    assert advance() == MOVED
    assert everything() == before

    forget_copies(settings)
    Rows().checkpoint(run, 500, triggered_at=OLD, final=True)
    way.cut()
    assert str(advance()).startswith("Late rows of 13 August 2026 are not counted yet: s3://")
    found = reading.checkpoints(run.job, [], None, upwards=True, limit=100)
    assert [each.checkpoint_id for each in found.checkpoints] == []
    assert [each.row.kind for each in found.unreadable] == ["checkpoints"]
    way.heal()
    assert due.anything_late()
    (late,) = rewriting.late_months({OLD.date()})
    steps = rewriting.steps(late, mover)
    while next(steps) != "write":
        pass
    way.cut()
    with pytest.raises((StorageError, OSError)):
        next(steps)
    way.heal()
    assert advance() == done(WorkReason.ARCHIVED_LATE(count=1))
    assert len(reading.checkpoints(run.job, [], None, upwards=True, limit=100).checkpoints) == 12
    assert not ArchivedFile.objects.exclude(problem="").exists()


def test_a_full_local_disk_is_reported_until_it_has_space_again(run: Run, small_disk: Path, settings) -> None:
    """Remote files are copied to the local disk to be read."""
    advance()
    settings.VAR_DIR = small_disk
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free))
    found = reading.checkpoints(run.job, [], None, upwards=True, limit=100)
    assert found.checkpoints == []
    (file,) = ArchivedFile.objects.exclude(problem="")
    assert "No space left" in file.problem
    filler.unlink()
    assert len(reading.checkpoints(run.job, [], None, upwards=True, limit=100).checkpoints) == 12
    assert not ArchivedFile.objects.exclude(problem="").exists()
