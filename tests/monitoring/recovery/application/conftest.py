from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from django.utils import timezone

from monitoring.models import Cluster, DiscoverySource, FoundResource, Job, RestartAttempt
from monitoring.reasons.columns import store
from monitoring.reasons.discoveries import DiscoveryReason
from tests.monitoring.conftest import Rows
from tests.monitoring.fake_job_manager import serving
from tests.monitoring.flink.waymark import Waymark
from tests.monitoring.recovery.application.fake_application import NAME, FakeApplication
from tests.monitoring.recovery.application.fake_history_server import FakeHistoryServer

CHECKPOINT = "file:/checkpoints/chk-4"


class Report:
    """What the platform reports: the operator of the deployment about its job, or YARN about its application."""

    def __init__(self, cluster: Cluster, waymark: Waymark) -> None:
        self._waymark, self._cluster = waymark, cluster
        self.source = DiscoverySource.objects.create(name="east")

    def __call__(self, state: str, job_id: str, error: str = "", started_at: datetime | None = None) -> None:
        reported = {"job": state, "job_id": job_id}
        if started_at is not None:
            reported["started_at"] = started_at.isoformat()
        self._store("flinkdeployments.flink.apache.org", reported, error)

    def yarn(self, id_: str, started_at: datetime, status: str = "UNDEFINED", error: str = "") -> None:
        """Report an application, which has ended now if it has a final status."""
        state = {"application": "RUNNING", "final_status": status, "started_at": started_at.isoformat()}
        if status != "UNDEFINED":
            state |= {"application": "FINISHED", "ended_at": self._waymark.now().isoformat()}
        if self._store("flinkapplications.yarn", state, error, id_):
            # Another application was found under the name (reconciling.py).
            Cluster.objects.filter(pk=self._cluster.pk).update(identity=None, stranger=None, next_poll_at=None)

    def _store(self, kind: str, state: dict[str, str], error: str, uid: str = "") -> bool:
        """Store the report, and return whether it is about another resource than the last one."""
        now = self._waymark.now()
        stored = FoundResource.objects.filter(source=self.source).first()
        row = stored or FoundResource(source=self.source, found_at=now)
        is_another = stored is not None and row.uid != uid
        row.cluster, row.kind, row.namespace, row.name, row.uid = self._cluster, kind, "prod", "orders", uid
        row.state, row.changed_at = state, now
        store(row, "problem", DiscoveryReason.OPERATOR_ERROR(error=error) if error else "")
        row.save()
        self.is_read()
        return is_another

    def is_read(self) -> None:
        DiscoverySource.objects.update(last_answer_at=self._waymark.now())


@pytest.fixture
def waymark(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waymark]:
    with Waymark(skips_waits=True) as worker:
        monkeypatch.setattr(timezone, "now", worker.now)  # pages use the same clock
        yield worker


@pytest.fixture
def history() -> Iterator[FakeHistoryServer]:
    """Return a History Server without archives. No cluster uses it yet."""
    with serving(FakeHistoryServer()) as server:
        yield server


@pytest.fixture
def application(tmp_path: Path, waymark: Waymark) -> Iterator[FakeApplication]:
    started = tmp_path / "started"
    started.mkdir()
    (tmp_path / "savepoints" / "of-others").mkdir(parents=True)
    fake = FakeApplication(started=started, savepoint=f"file:{tmp_path}/savepoints", now=waymark.now)
    with serving(fake):
        yield fake


@pytest.fixture
def job(application: FakeApplication, waymark: Waymark) -> Job:
    """Return a job that runs in an application cluster, with one checkpoint."""
    Cluster.objects.create(name="orders", rest_url=application.url, poll_interval_s=1)
    application.start(uuid.uuid4().hex)
    job = waymark.job(NAME)
    Rows(now=waymark.now()).checkpoint(job.current_run, 4, external_path=CHECKPOINT)
    job.launch, job.auto_restart = {"kind": "command", "command": application.command()}, True
    job.save()
    return job


@pytest.fixture
def report(job: Job, waymark: Waymark) -> Report:
    return Report(job.cluster, waymark)


def only_job(application: FakeApplication) -> str:
    (job_id,) = application.jobs
    return job_id


def restarted(job: Job, waymark: Waymark, what: str = "it is restarted") -> RestartAttempt:
    attempt = waymark.ended(waymark.until(what, lambda: job.restart_attempts.first()))
    assert attempt.state == "succeeded", attempt.error
    return attempt


def died(application: FakeApplication, waymark: Waymark, job: Job) -> None:
    """End the cluster, and wait until it is known that it does not answer."""
    application.end("FAILED")
    waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())


def is_silent() -> bool:
    return Cluster.objects.filter(unreachable_since__isnull=False).exists()
