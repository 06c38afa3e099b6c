"""A query that several clusters see is one job: its best source leads, and the others add what it does not know."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from monitoring.engine import registration
from monitoring.engine.answers import Checkpoints, CheckpointStats
from monitoring.engine.client import FlinkClient
from monitoring.engine.reported.report import report_in
from monitoring.engine.reported.storing import store
from monitoring.models import (
    Checkpoint,
    CheckpointGap,
    Cluster,
    Discovery,
    Job,
    QuerySource,
    ReportedRun,
    Run,
    RunStateChange,
    WatchedQuery,
)
from monitoring.polling.poller import Poller
from monitoring.reasons.engines import EngineReason
from tests.checkpointing.eventlogs.logs import QUERY, EventLog, header, progress, started, terminated, time_of
from tests.checkpointing.watched.locations import Location
from tests.monitoring.polling.conftest import FakeEngine, Workers

FIRST, SECOND = str(UUID(int=11)), str(UUID(int=12))


@dataclass
class Query:
    """A query that writes its checkpoint location, and may write an event log and report. Batches take a second."""

    root: Path
    start_ms: int = field(default_factory=lambda: round(time.time() * 1000) - 300_000)
    query_id: str = QUERY

    def __post_init__(self) -> None:
        path = self.root / "checkpoints" / "orders"
        self.location = Location(path, self.query_id, start_ms=self.start_ms)

    def report(self, *numbers: int, run: str = FIRST, **fields: Any) -> None:
        """Report the batches as the agent does. Its clock is 2 s behind that of the storage."""
        at = time_of(self.start_ms)
        query = {"query_id": self.query_id, "run_id": run, "name": "orders", "state": "running", "started_at": at}
        batches = [
            progress(number, run, self.start_ms + number * 1000 - 2000)["progress"]
            | {"id": self.query_id, "batchDuration": 250, "sources": [{"description": "Rate", "endOffset": "5"}]}
            for number in numbers
        ]
        body = {"version": 1, "program": {"name": "shop", "spark": "4.3.0"}}
        body |= {"queries": [query | {"dropped": 0} | fields], "progress": batches}
        now = timezone.now()
        store(Cluster.objects.get(name="agent"), report_in(json.dumps(body).encode(), now), now)

    def fall_silent(self) -> None:
        ReportedRun.objects.update(reported_at=timezone.now() - timedelta(minutes=10))


@pytest.fixture
def query(tmp_path: Path, settings: Settings, transactional_db: None) -> Query:
    settings.STATE_ROOTS = (str(tmp_path),)
    return Query(tmp_path)


def directory(query: Query, name: str = "directory") -> Cluster:
    return Cluster.objects.create(name=name, discovery=Discovery.DIRECTORY, rest_url=f"{query.root}/checkpoints")


def agent() -> Cluster:
    return Cluster.objects.create(name="agent", discovery=Discovery.AGENT)


def logs(query: Query) -> Cluster:
    (query.root / "logs").mkdir(exist_ok=True)
    return Cluster.objects.create(name="logs", discovery=Discovery.EVENT_LOG, rest_url=f"{query.root}/logs")


@pytest.fixture
def several(poll: Workers) -> Callable[[], None]:
    def polls() -> None:
        for _ in range(4):
            poll()

    return polls


def job_now() -> tuple[str, str, str, str]:
    job = Job.objects.select_related("cluster", "current_run").get()
    run = job.current_run
    assert run is not None
    return job.cluster.name, job.name, run.engine_job_id, run.state


def numbers() -> list[int]:
    """Return the numbers of all batches of the job, each as often as it is stored."""
    return sorted(Checkpoint.objects.values_list("checkpoint_id", flat=True))


def test_a_query_in_three_sources_is_one_job_of_the_best_source(query: Query, several: Callable[[], None]) -> None:
    directory(query), logs(query), agent()
    query.location.run(0, 4)
    log = EventLog(query.root / "logs", codec="zstd").append(*header(), started(run=FIRST, at_ms=query.start_ms))
    log.append(*(progress(number, FIRST, query.start_ms + number * 1000) for number in range(5)))
    log.append(at_ms=round(time.time() * 1000))
    query.report(*range(5))
    several()
    assert job_now() == ("agent", "shop/orders", UUID(FIRST).hex, "RUNNING")
    assert numbers() == [0, 1, 2, 3, 4]
    assert set(QuerySource.objects.values_list("cluster__name", "query__query_id")) == {
        (name, UUID(QUERY).hex) for name in ("agent", "logs", "directory")
    }
    assert Run.objects.get().started_at.timestamp() * 1000 == query.start_ms


def test_a_better_source_continues_the_job_and_its_run_and_reports_its_own_figures(
    query: Query, several: Callable[[], None]
) -> None:
    directory(query)
    query.location.run(0, 4)
    query.location.begin(5)
    several()
    before = Job.objects.get()
    assert job_now() == ("directory", "orders", UUID(QUERY).hex, "RUNNING")
    agent()
    query.location.commit(5)
    query.location.run(6, 7)
    query.report(*range(3, 8))
    several()
    assert job_now() == ("agent", "shop/orders", UUID(FIRST).hex, "RUNNING")
    assert (Job.objects.get(), Run.objects.count(), numbers()) == (before, 1, [*range(8)])
    durations = dict(Checkpoint.objects.values_list("checkpoint_id", "end_to_end_duration"))
    assert (durations[2], durations[3], durations[7]) == (300, 250, 250)
    assert {EngineReason.SEEN_THROUGH(cluster="agent")} <= {each.why_value for each in RunStateChange.objects.all()}


def test_batches_and_sizes_that_the_agent_does_not_report_come_from_the_files(
    query: Query, several: Callable[[], None]
) -> None:
    directory(query), agent()
    query.location.write("state/0/0/1.delta", "x" * 700, query.start_ms)
    query.location.run(0, 1)
    query.report(0, 1)
    several()
    query.location.run(2, 9)
    query.report(9, dropped=7)
    several()
    assert job_now() == ("agent", "shop/orders", UUID(FIRST).hex, "RUNNING")
    assert numbers() == [*range(10)]
    assert set(Checkpoint.objects.values_list("status", "final")) == {("COMPLETED", True)}
    assert not CheckpointGap.objects.exists()
    assert Checkpoint.objects.get(checkpoint_id=9).end_to_end_duration == 250


class CountingClient(FlinkClient):
    """Notes the run of each list of checkpoints that it reads."""

    reads: ClassVar[list[str]] = []

    async def checkpoints_unless(
        self, job_id: str, known: int | None, entries: Mapping[int, CheckpointStats]
    ) -> tuple[int, Checkpoints | None]:
        self.reads.append(job_id)
        return await super().checkpoints_unless(job_id, known, entries)


def test_a_source_that_does_not_lead_reads_an_ended_run_once_per_worker(
    query: Query, poll: Workers, several: Callable[[], None]
) -> None:
    logs(query), agent()
    log = EventLog(query.root / "logs").append(*header(), started(run=FIRST, at_ms=query.start_ms))
    log.append(progress(0, FIRST, query.start_ms), terminated("java.lang.BoomError: bad", FIRST))
    log.append(started(run=SECOND, at_ms=query.start_ms + 20_000), progress(1, SECOND, query.start_ms + 21_000))
    log.append(at_ms=round(time.time() * 1000))
    query.report(1, run=SECOND)
    poll.make_client = CountingClient  # type: ignore[assignment]
    several()
    CountingClient.reads.clear()
    several()
    assert job_now() == ("agent", "shop/orders", UUID(SECOND).hex, "RUNNING")
    assert UUID(SECOND).hex in CountingClient.reads
    assert UUID(FIRST).hex not in CountingClient.reads


def test_a_silent_agent_does_not_hide_the_batches_that_the_files_show(
    query: Query, several: Callable[[], None]
) -> None:
    directory(query), agent()
    query.location.run(0, 2)
    query.report(0, 1, 2)
    several()
    query.fall_silent()
    query.location.run(3, 5)
    several()
    assert job_now() == ("directory", "shop/orders", UUID(QUERY).hex, "RUNNING")
    assert numbers() == [*range(6)]
    query.location.run(6, 6)
    query.report(5, 6)
    several()
    assert job_now() == ("agent", "shop/orders", UUID(FIRST).hex, "RUNNING")
    assert (numbers(), Run.objects.count()) == ([*range(7)], 1)


def test_a_failed_run_stays_failed_until_the_files_show_later_batches(
    query: Query, several: Callable[[], None]
) -> None:
    directory(query), agent()
    query.location.run(0, 2)
    query.report(0, 1, 2)
    several()
    ended = {"state": "ended", "ended_at": time_of(query.start_ms + 3000), "exception": "java.lang.BoomError: bad"}
    query.report(**ended)
    several()
    assert job_now() == ("agent", "shop/orders", UUID(FIRST).hex, "FAILED")
    query.location.start_ms += 60_000
    query.location.run(3, 4)
    several()
    assert job_now() == ("directory", "shop/orders", UUID(QUERY).hex, "RUNNING")
    assert (numbers(), Run.objects.count()) == ([*range(5)], 2)
    query.location.run(5, 5)
    query.start_ms += 60_000
    query.report(5, run=SECOND)
    several()
    assert job_now() == ("agent", "shop/orders", UUID(SECOND).hex, "RUNNING")
    states = list(Run.objects.order_by("number").values_list("engine_job_id", "state", "superseded"))
    assert states == [(UUID(FIRST).hex, "FAILED", False), (UUID(SECOND).hex, "RUNNING", False)]
    assert numbers() == [*range(6)]


def test_a_job_continues_through_the_other_source_if_one_is_removed(query: Query, several: Callable[[], None]) -> None:
    files, reports = directory(query), agent()
    query.location.run(0, 2)
    query.report(0, 1, 2)
    several()
    before = Job.objects.get()
    registration.remove(reports, actor="ann", reason="", now=timezone.now())
    query.location.run(3, 3)
    several()
    assert job_now() == ("directory", "shop/orders", UUID(QUERY).hex, "RUNNING")
    assert (Job.objects.get(), numbers()) == (before, [0, 1, 2, 3])
    registration.watch(reports, watched=True, actor="ann")
    query.report(3)
    several()
    assert job_now()[0] == "agent"
    registration.remove(files, actor="ann", reason="", now=timezone.now())
    query.report(4)
    several()
    assert (job_now()[0], numbers()) == ("agent", [*range(5)])
    assert [source.cluster for source in QuerySource.objects.all()] == [reports]


def test_a_query_of_a_removed_cluster_begins_a_new_job(query: Query, several: Callable[[], None]) -> None:
    old = directory(query)
    query.location.run(0, 2)
    several()
    registration.remove(old, actor="ann", reason="", now=timezone.now())
    directory(query, "again")
    several()
    assert sorted(Job.objects.values_list("cluster__name", "name")) == [("again", "orders"), ("directory", "orders")]
    assert WatchedQuery.objects.get().job == Job.objects.get(cluster__name="again")


def test_the_worse_of_two_jobs_from_an_earlier_version_ends(query: Query, several: Callable[[], None]) -> None:
    directory(query)
    query.location.run(0, 2)
    several()
    WatchedQuery.objects.all().delete()
    Cluster.objects.update(enabled=False)
    agent()
    query.report(0, 1, 2)
    several()
    assert Job.objects.count() == 2
    Cluster.objects.update(enabled=True)
    several()
    jobs = {job.cluster.name: job for job in Job.objects.select_related("cluster", "current_run")}
    states = {name: job.current_run.state for name, job in jobs.items() if job.current_run}
    assert states == {"agent": "RUNNING", "directory": "CANCELED"}
    assert jobs["directory"].name == f"orders ({jobs['directory'].pk})"
    several()
    assert Job.objects.count() == 2


def test_a_deleted_checkpoint_gives_the_same_job_its_next_query(query: Query, several: Callable[[], None]) -> None:
    files = directory(query)
    agent()
    query.location.run(0, 2)
    query.report(0, 1, 2)
    several()
    query.report(state="ended", ended_at=time_of(query.start_ms + 3000))
    query.location.path.rename(query.root / "away")
    new = Query(query.root, query.start_ms + 100_000, str(UUID(int=7)))
    new.location.run(0, 1)
    Cluster.objects.filter(pk=files.pk).update(scan={})
    several()
    new.report(0, 1, run=SECOND)
    several()
    assert job_now() == ("agent", "shop/orders", UUID(SECOND).hex, "RUNNING")
    assert set(WatchedQuery.objects.values_list("query_id", "job")) == {
        (UUID(each).hex, Job.objects.get().pk) for each in (QUERY, new.query_id)
    }


def test_a_job_that_waymark_starts_from_the_location_continues_the_history(
    query: Query, engine: FakeEngine, several: Callable[[], None]
) -> None:
    directory(query)
    query.location.run(0, 2)
    several()
    before = Job.objects.get()
    Cluster.objects.create(name="waymark", rest_url=engine.url)
    started_at = round(time.time() * 1000)
    moved = engine.job(name="orders by Waymark", imported=[QUERY], started=started_at)
    several()
    assert job_now() == ("waymark", "orders by Waymark", moved.id, "RUNNING")
    assert Job.objects.get() == before
    runs = list(Run.objects.order_by("number").values_list("number", "engine_job_id", "state"))
    assert runs == [(1, UUID(QUERY).hex, "CANCELED"), (2, moved.id, "RUNNING")]
    assert numbers() == [0, 1, 2]
    moved.state, moved.ended = "CANCELED", round(time.time() * 1000)
    several()
    assert job_now() == ("waymark", "orders by Waymark", moved.id, "CANCELED")
    query.location.start_ms = moved.ended + 60_000
    query.location.run(3, 3)
    several()
    assert sorted(Job.objects.values_list("cluster__name", "name")) == [
        ("directory", "orders"),
        ("waymark", "orders by Waymark"),
    ]


def test_polls_of_three_clusters_at_the_same_time_make_one_job_of_each_query(query: Query) -> None:
    clusters = [directory(query), directory(query, "copy"), agent()]
    shutil.rmtree(query.location.path)
    queries = [UUID(int=100 + number) for number in range(40)]
    for number, query_id in enumerate(queries):
        each = Location(query.root / f"checkpoints/q{number}", str(query_id), start_ms=query.start_ms).run(0, 3)
        assert each.id == query_id.hex
        query.query_id = str(query_id)
        query.report(0, 1, 2, 3, run=str(UUID(int=1000 + number)), name=f"q{number}")
    errors: list[BaseException] = []
    barrier = threading.Barrier(3)

    def worker(cluster: Cluster) -> None:
        try:
            with Poller(timezone.now) as poller:
                for _ in range(8):
                    Cluster.objects.filter(pk=cluster.pk).update(next_poll_at=None)
                    barrier.wait(60)
                    poller.start_due()
                    while poller.in_flight:
                        poller.serve(0.1)
        except BaseException as error:  # noqa: BLE001  (shown by the test)
            errors.append(error)
            barrier.abort()
        finally:
            connection.close()

    threads = [threading.Thread(target=worker, args=(cluster,)) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(Cluster.objects.values_list("last_error", flat=True)) == {""}
    assert WatchedQuery.objects.count() == 40
    assert set(Job.objects.values_list("cluster__name", flat=True)) == {"agent"}
    assert Job.objects.count() == 40
    assert Checkpoint.objects.count() == 160
    assert QuerySource.objects.count() == 120
