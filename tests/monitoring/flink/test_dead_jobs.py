"""Waymark restarts dead jobs of a real Flink from their newest state, and every number counts once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from monitoring.engine.evidence import EMPTY_HOLD_DOWN
from monitoring.launches import remember_edit
from monitoring.models import Cluster, Job, RestartAttempt, RestartDecision
from monitoring.programs import keep
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.conftest import LONG
from tests.monitoring.flink.jobs import CONFIGURATION, CountJobs
from tests.monitoring.flink.ledger import Ledger
from tests.monitoring.flink.waymark import Waymark
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture
def ledger_jobs(flink: FlinkCluster, jars: dict[str, bytes], tmp_path: Path) -> Iterator[CountJobs]:
    with CountJobs(flink, jars["ledger-1"], tmp_path) as started:
        yield started


@pytest.mark.parametrize("state_is_reached", [True, pytest.param(False, marks=LONG)])
def test_killed_task_manager_and_killed_job_manager(
    flink: FlinkCluster,
    ledger_jobs: CountJobs,
    jars: dict[str, bytes],
    tmp_path: Path,
    settings: Any,
    state_is_reached: bool,
) -> None:
    settings.STATE_ROOTS = (str(flink.checkpoints),) if state_is_reached else ()
    cluster = Cluster.objects.create(name=f"real {uuid.uuid4().hex}", rest_url=flink.url, poll_interval_s=1)
    name, ledger = f"ledger {uuid.uuid4().hex[:6]}", Ledger(tmp_path / "out")
    with Waymark() as waymark:
        first = ledger_jobs.start(
            name,
            configuration={"restart-strategy.type": "none"},
            checkpoints=2,
            program_args=[str(ledger.directory)],
        )
        job = waymark.job(name)
        look_after(job, cluster, ledger_jobs, jars["ledger-1"], ledger)
        waymark.until("a state of it is known", lambda: job.runs.get().checkpoints.filter(status="COMPLETED").exists())

        flink.task_manager.kill()
        flink.task_manager.start()
        back = waymark.ended(waymark.until("it is restarted", lambda: job.restart_attempts.first()))
        assert back.state == "succeeded", back.error
        assert_reason_is_the_failure(back, first)

        counted = len(ledger.entries())
        eventually("it counts on", lambda: len(ledger.entries()) > counted)
        waymark.until("the new run is known", lambda: back.new_run.checkpoints.filter(status="COMPLETED").exists())
        lost = back.engine_job_id
        flink.job_managers[0].kill()
        flink.job_managers[0].start()
        flink.wait_for_slots()
        waymark.until("it is missed", lambda: job.runs.filter(missing_since__isnull=False).exists())
        waymark.ahead = EMPTY_HOLD_DOWN
        again = waymark.ended(
            waymark.until("it is restarted again", lambda: job.restart_attempts.filter(epoch=2).first())
        )
        assert again.state == "succeeded", again.error
        assert again.old_run.engine_job_id == lost
        assert "but no longer knows" in again.reason
        assert "Upload the program" in [step.name for step in again.steps.all()]

        waymark.stopped_with_savepoint(name)
    assert len(ledger.assert_exact()) > counted
    # The new job manager has one run, and failed starts from guessed checkpoints if Waymark cannot read the state.
    lives = [each["state"] for each in flink.get("/jobs/overview")["jobs"] if each["name"] == name]
    assert [state for state in lives if state_is_reached or state != "FAILED"] == ["FINISHED"]
    # For Waymark a refused start is no run.
    assert list(job.runs.order_by("number").values_list("state", flat=True)[:2]) == ["FAILED", "LOST"]
    assert job.runs.count() == 3


def look_after(job: Job, cluster: Cluster, jobs: CountJobs, jar: bytes, ledger: Ledger) -> None:
    """Enable automatic restarts, and store how to start the job."""
    settings = {**CONFIGURATION, "restart-strategy.type": "none"}
    arguments = [str(jobs.switches), str(ledger.directory)]
    spec = {"kind": "flink-jar", "jar_id": jobs.jar_id, "program_args": arguments, "configuration": settings}
    remember_edit(job, spec | {"parallelism": 2, "entry_class": None}, "ada", timezone.now())
    keep(cluster, jobs.jar_id, "ledger.jar", jar, "ada", timezone.now())
    Job.objects.filter(pk=job.pk).update(auto_restart=True)


def assert_reason_is_the_failure(attempt: RestartAttempt, killed: str) -> None:
    assert attempt.old_run.engine_job_id == killed
    assert "has been FAILED since" in attempt.reason
    assert "Exception" in attempt.reason  # which one depends on who notices first that the task manager is gone
    assert RestartDecision.objects.filter(job=attempt.job, reason=attempt.reason).exists()
    death, decision, *_ = attempt.steps.all()
    assert (death.name, decision.name) == ("Detect the failure", "Decide")
    assert attempt.restore_path.endswith(tuple("0123456789"))  # a retained checkpoint, .../chk-N
