"""Builders of stored rows. A test gives the values that matter to it; the others have usual defaults."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from monitoring.models import Checkpoint, CheckpointStatus, Cluster, Job, Run, RunState
from tests.monitoring.fake_job_manager import FakeJobManager, running_job_manager

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@dataclass
class Rows:
    """A builder of rows with times at and around `now`."""

    now: datetime = NOW
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def ago(self, seconds: float) -> datetime:
        return self.now - timedelta(seconds=seconds)

    def cluster(self, **values: object) -> Cluster:
        number = next(self.numbers)
        defaults = {"name": f"cluster-{number}", "rest_url": "http://127.0.0.1:1/"}
        return Cluster.objects.create(**{**defaults, **values})

    def job(self, cluster: Cluster | None = None, **values: object) -> Job:
        cluster = cluster or self.cluster()
        return Job.objects.create(**{"cluster": cluster, "name": f"job-{next(self.numbers)}", **values})

    def run(self, job: Job, state: str = RunState.RUNNING, current: bool = True, **values: object) -> Run:
        defaults = {
            "job": job,
            "number": job.runs.count() + 1,
            "engine_job_id": uuid.uuid4().hex,
            "state": state,
            "observed_at": self.now,
            "started_at": self.ago(3600),
            "ended_at": self.ago(5) if RunState(state).terminal else None,
        }
        run = Run.objects.create(**{**defaults, **values})
        if current:
            job.current_run = run
            job.save(update_fields=["current_run"])
        return run

    def checkpoint(self, run: Run, number: int | None = None, **values: object) -> Checkpoint:
        number = number or next(self.numbers)
        defaults = {
            "run": run,
            "checkpoint_id": number,
            "status": CheckpointStatus.COMPLETED,
            "triggered_at": self.ago(60),
            "external_path": f"file:/checkpoints/{run.engine_job_id}/chk-{number}",
        }
        return Checkpoint.objects.create(**{**defaults, **values})

    def failed(
        self, run: Run, number: int, failed_at: datetime, message: str = "Checkpoint expired before completing."
    ):
        return self.checkpoint(
            run,
            number,
            status=CheckpointStatus.FAILED,
            failed_at=failed_at,
            triggered_at=failed_at - timedelta(seconds=10),
            failure_message=message,
            external_path="",
        )


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def rows(db: None) -> Rows:
    return Rows()


@pytest.fixture
def later() -> Callable[[float], datetime]:
    """Return a function that gives the time `seconds` after `now`."""
    return lambda seconds: NOW + timedelta(seconds=seconds)


@pytest.fixture
def job_manager() -> Iterator[FakeJobManager]:
    with running_job_manager() as manager:
        yield manager


@pytest.fixture
def poll(job_manager) -> Callable[[Job, datetime], None]:
    """Return a function that stores the engine's status of a job, as the poller does."""

    def read(job: Job, now: datetime) -> None:
        for result in list(job_manager.jobs.values()):
            if result.name != job.name:
                continue
            ended_at = now if result.state in ("FAILED", "CANCELED", "FINISHED") else None
            run, created = Run.objects.get_or_create(
                job=job,
                engine_job_id=result.id,
                defaults={
                    "number": job.runs.count() + 1,
                    "state": result.state,
                    "observed_at": now,
                    "started_at": now,
                    "ended_at": ended_at,
                    "end_seen_at": ended_at,
                    "final_read_done": True,
                    "restored_path": result.savepoint_path or "",
                },
            )
            if not created and run.state != result.state:
                run.state, run.ended_at, run.end_seen_at, run.observed_at = result.state, ended_at, ended_at, now
                run.save()
        job.current_run = job.runs.order_by("-number").first()
        Job.objects.filter(pk=job.pk).update(current_run=job.current_run)
        job.refresh_from_db()

    return read
