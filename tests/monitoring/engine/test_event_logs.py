"""The transport for event logs: it stores what they report, and answers Flink's paths. Every command is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from checkpointing.storage.errors import AccessDenied
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import connection_of
from monitoring.engine.errors import EngineError, Refused, RequestNotSent, RootUnreadable
from monitoring.engine.examination import Problem, examine
from monitoring.engine.probe import Found
from monitoring.engine.reported.event_logs import EventLogTransport
from monitoring.models import Cluster, Discovery, ReportedBatch, ReportedRun
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.refusals import RefusalReason
from tests.checkpointing.eventlogs.logs import (
    RUN,
    START_MS,
    CountedFiles,
    EventLog,
    application_end,
    header,
    job_end,
    progress,
    started,
    terminated,
)

JOB = UUID(RUN).hex


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: Settings) -> Path:
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


@pytest.fixture
def cluster(root: Path, transactional_db: None) -> Cluster:
    return Cluster.objects.create(name="lake", discovery=Discovery.EVENT_LOG, rest_url=str(root))


class Worker:
    def __init__(self, cluster: Cluster, row: Mapping[str, Any] | None = None) -> None:
        self.now = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=60)
        connection = connection_of(cluster)
        self.client = FlinkClient(connection, read_limit_s=20)
        self.files = CountedFiles()
        self.transport = EventLogTransport(connection, lambda: self.now, self.files)
        self.transport.stored = row or {}
        self.client._transport = self.client.reported = self.client.event_logs = self.transport

    def jobs(self) -> dict[str, str]:
        """Return the states of the jobs by name. Each call is a poll of a worker that knows only what is stored."""
        self.now += timedelta(seconds=10)
        self.transport.stored = json.loads(json.dumps(self.transport.stored))
        return {job.name: job.state for job in asyncio.run(self.client.jobs_overview())}


def test_each_run_is_a_job_and_each_batch_a_checkpoint_with_its_phases(root: Path, cluster: Cluster) -> None:
    log = EventLog(root, codec="zstd", rolling=True).append(*header("<b>shop"), started(), progress(0), progress(1))
    worker = Worker(cluster)
    assert worker.jobs() == {"<b>shop/orders": "RUNNING"}
    checkpoints = asyncio.run(worker.client.checkpoints(JOB))
    assert [(each.id, each.status) for each in checkpoints.history] == [(1, "COMPLETED"), (0, "COMPLETED")]
    assert (checkpoints.counts.total, checkpoints.counts.in_progress, checkpoints.counts.failed) == (2, None, None)
    assert asyncio.run(worker.client.checkpoint_details(JOB, 1)).totals.end_to_end_duration == 300
    position = asyncio.run(worker.client.job(JOB)).position
    assert position is not None
    assert (position.batch, position.sources) == (1, ("2",))
    config = asyncio.run(worker.client.job_config(JOB))
    assert (config.user_config["program"], config.user_config["sparkVersion"]) == ("<b>shop", "4.3.0")
    stored = ReportedBatch.objects.get(batch_id=1).progress
    assert stored["durationMs"] == {"addBatch": 200, "commitOffsets": 30, "triggerExecution": 300}
    assert (stored["numInputRows"], stored["inputRowsPerSecond"], stored["processedRowsPerSecond"]) == (7, None, 2.5)
    assert stored["stateOperators"][0]["numRowsTotal"] == 4
    log.append(progress(2))
    worker.jobs()
    assert asyncio.run(worker.client.checkpoints(JOB)).counts.total == 3


def test_a_termination_is_a_failure_with_its_exception(root: Path, cluster: Cluster) -> None:
    log = EventLog(root).append(*header(), started(), progress(0))
    worker = Worker(cluster)
    worker.jobs()
    exception = "org.apache.spark.SparkRuntimeException: bad row\n\tat x"
    log.append(job_end(START_MS + 9_000), terminated(exception), at_ms=START_MS + 9_000)
    assert worker.jobs() == {"shop/orders": "FAILED"}
    (found,) = asyncio.run(worker.client.exceptions(JOB))
    assert found.name == "org.apache.spark.SparkRuntimeException"
    assert found.at == datetime.fromtimestamp(START_MS / 1000 + 9, UTC)
    log.append(application_end(START_MS + 12_000))
    log.close()
    assert worker.jobs() == {"shop/orders": "FAILED"}


def test_the_end_of_the_application_ends_its_queries(root: Path, cluster: Cluster) -> None:
    log = EventLog(root).append(*header(), started(), progress(0), application_end(START_MS + 9_000))
    log.close()
    worker = Worker(cluster)
    assert worker.jobs() == {"shop/orders": "FINISHED"}
    assert asyncio.run(worker.client.exceptions(JOB)) == ()


def test_a_log_that_stops_growing_makes_its_queries_unknown_not_ended(root: Path, cluster: Cluster) -> None:
    log = EventLog(root).append(*header(), started(), progress(0))
    worker = Worker(cluster)
    assert worker.jobs() == {"shop/orders": "RUNNING"}
    worker.now += timedelta(minutes=5)
    assert worker.jobs() == {"shop/orders": "RECONCILING"}
    log.append({"Event": "SparkListenerTaskEnd"}, at_ms=round(worker.now.timestamp() * 1000))
    assert worker.jobs() == {"shop/orders": "RUNNING"}


def test_an_old_log_is_not_taken_for_a_running_program(root: Path, cluster: Cluster) -> None:
    EventLog(root).append(*header(), started(), progress(0), at_ms=START_MS - 3_600_000)
    assert Worker(cluster).jobs() == {"shop/orders": "RECONCILING"}


def test_a_worker_with_an_older_position_repeats_nothing(root: Path, cluster: Cluster) -> None:
    log = EventLog(root).append(*header(), started(), progress(0))
    first = Worker(cluster)
    first.jobs()
    row = first.transport.stored
    log.append(progress(1), progress(2))
    first.jobs()
    before = list(ReportedBatch.objects.order_by("pk").values())
    # The first worker was killed after it had stored the reports, and before the position.
    second = Worker(cluster, row)
    second.now = first.now
    second.jobs()
    assert list(ReportedBatch.objects.order_by("pk").values()) == before
    assert second.transport.stored == first.transport.stored
    log.append(terminated())
    assert second.jobs() == {"shop/orders": "FINISHED"}


def test_a_poll_without_news_costs_one_listing_and_stores_nothing(root: Path, cluster: Cluster) -> None:
    for number in range(5):
        log = EventLog(root, f"app-{number}").append(*header(), started(run=str(UUID(int=number + 9))))
    worker = Worker(cluster)
    worker.jobs()
    row, before = worker.transport.stored, worker.files.read_bytes
    worker.files.listings.clear()
    worker.jobs()
    assert (worker.files.read_bytes, worker.files.listings) == (before, [str(root)])
    assert worker.transport.stored == row
    assert log.path.exists()


def test_an_event_of_another_form_is_named_and_the_others_are_stored(root: Path, cluster: Cluster) -> None:
    wrong = progress(1, durationMs={"addBatch": "long"})
    EventLog(root).append(*header(), started(), progress(0), wrong, progress(2))
    worker = Worker(cluster)
    worker.jobs()
    assert sorted(ReportedBatch.objects.values_list("batch_id", flat=True)) == [0, 2]
    problem = worker.transport.problem
    assert problem == EngineReason.FIELD_TYPE(
        where="progress.durationMs.addBatch", found=EngineReason.TEXT(), expected=EngineReason.WHOLE_NUMBER()
    )


def test_a_problem_of_one_log_does_not_stop_the_others(root: Path, cluster: Cluster) -> None:
    EventLog(root, "bad", codec="lzf").append_bytes(b"ZV")
    EventLog(root).append(*header(), started())
    worker = Worker(cluster)
    assert worker.jobs() == {"shop/orders": "RUNNING"}
    location = f"{root}/bad.lzf.inprogress"
    assert worker.transport.problem == RefusalReason.UNKNOWN_CODEC(location=location, codec="lzf")


@pytest.mark.parametrize(
    "act",
    [
        lambda client: client.cancel(JOB),
        lambda client: client.trigger_savepoint(JOB, JOB),
        lambda client: client.stop_with_savepoint(JOB, JOB),
        lambda client: client.run_jar("a.py", job_id=JOB),
        lambda client: client.dispose_savepoint("/s"),
    ],
)
def test_every_command_is_refused_with_the_reason(cluster: Cluster, act: Any) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(act(Worker(cluster).client))
    assert (refused.value.status, refused.value.reason) == (405, EngineReason.ONLY_WATCHED())


def test_a_missing_or_unreadable_directory_is_named_and_ends_nothing(root: Path, cluster: Cluster) -> None:
    EventLog(root / "logs").append(*header(), started())
    cluster.rest_url = f"{root}/logs"
    worker = Worker(cluster)
    assert worker.jobs() == {"shop/orders": "RUNNING"}
    (root / "logs").rename(root / "away")
    with pytest.raises(RootUnreadable) as unreadable:
        worker.jobs()
    assert unreadable.value.reason == EngineReason.ROOT_MISSING(root=f"{root}/logs")
    (root / "away").rename(root / "logs")
    worker.files.entries = _refuse  # type: ignore[method-assign]
    with pytest.raises(RootUnreadable) as unreadable:
        worker.jobs()
    assert isinstance(unreadable.value.reason, type(EngineReason.ONLY_WATCHED()))
    assert unreadable.value.reason.code == EngineReason.ROOT_UNREADABLE
    assert ReportedRun.objects.get().ended_at is None


def _refuse(path: str) -> Any:
    raise AccessDenied(f"{path}: the storage refuses access")


def test_the_directory_must_be_below_the_state_roots(root: Path, settings: Settings, cluster: Cluster) -> None:
    settings.STATE_ROOTS = (f"{root}/other",)
    with pytest.raises(RequestNotSent):
        asyncio.run(FlinkClient(connection_of(cluster)).jobs_overview())


def test_the_test_of_a_directory_counts_its_queries_and_stores_nothing(root: Path, cluster: Cluster) -> None:
    EventLog(root).append(*header(), started(), started("second", str(UUID(int=7))))
    EventLog(root, "ended").append(*header(), application_end(START_MS)).close()
    for each in (cluster, Cluster(name="new", discovery=Discovery.EVENT_LOG, rest_url=str(root))):
        found = examine(each, lambda: pytest.fail("the clock is not needed"))
        assert isinstance(found, Found)
        assert (found.reason, found.remarks) == (EngineReason.FOUND_QUERIES(count=2), ())
    assert not ReportedRun.objects.exists()
    shutil.rmtree(root)
    expected = Problem("rest_url", EngineReason.ROOT_MISSING(root=str(root)), passing=True)
    assert examine(cluster, lambda: pytest.fail("the clock is not needed")) == expected


def test_an_unknown_run_is_denied(root: Path, cluster: Cluster) -> None:
    EventLog(root).append(*header(), started())
    worker = Worker(cluster)
    worker.jobs()
    with pytest.raises(EngineError) as denied:
        asyncio.run(worker.client.job("0" * 32))
    assert denied.value.reason == EngineReason.RUN_NOT_REPORTED(run="0" * 32)
