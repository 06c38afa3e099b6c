"""A cluster that is silent proves nothing, but its platform may report the end of its job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.models import (
    Checkpoint,
    Cluster,
    DiscoverySource,
    FoundResource,
    Job,
    Outage,
    OutageKind,
    Run,
    RunStateChange,
)
from monitoring.reasons.columns import store
from monitoring.reasons.discoveries import DiscoveryReason

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(cluster, poll):
    """Return a function that stores what the operator reports about the deployment of the cluster, a second later."""
    source = DiscoverySource.objects.create(name="east")
    row = FoundResource(source=source, kind="flinkdeployments.flink.apache.org", namespace="prod", name="orders")
    row.cluster, row.found_at = cluster, poll.clock

    def write(state: str, job_id: str, error: str = "") -> None:
        poll.clock += timedelta(seconds=1)
        row.state, row.changed_at = {"job": state, "job_id": job_id}, poll.clock
        store(row, "problem", DiscoveryReason.OPERATOR_ERROR(error=error) if error else "")
        row.save()

    return write


def silence(engine) -> None:
    engine.down_with = (503, "no endpoints available")


def test_the_run_ends_as_the_platform_reports_with_its_error(engine, poll, report):
    job = engine.job()
    job.add(1)
    job.add(2, status="IN_PROGRESS")
    poll()
    silence(engine)
    report("FAILED", job.id, "The task manager was killed.")
    sentences = poll()
    run = Run.objects.get()
    assert (run.state, run.end_seen_at, run.ended_at) == ("FAILED", poll.clock, poll.clock - timedelta(seconds=20))
    assert run.final_read_done
    assert run.exception == "The operator reports: The task manager was killed."
    assert [one["message"] for one in run.exceptions] == [run.exception]
    assert "demo-job run 1 is FAILED (east reports the job of prod/orders as FAILED.)" in sentences
    change = RunStateChange.objects.get(target="FAILED")
    assert change.why_value.code is DiscoveryReason.JOB_ENDED
    assert Checkpoint.objects.get(checkpoint_id=2).status == "FAILED"
    assert Outage.objects.get().ended_at == poll.clock, "the silence is explained"
    poll()
    assert RunStateChange.objects.count() == 2
    assert Outage.objects.count() == 1
    assert Cluster.objects.get().has_ended


def test_an_exception_that_the_engine_reported_is_kept(engine, poll, report):
    job = engine.job()
    trace = "java.lang.IllegalStateException: it went boom\n\tat a.B"
    job.exceptions = [{"exceptionName": "a.X", "stacktrace": trace, "timestamp": job.started + 1, "taskName": "count"}]
    poll()
    silence(engine)
    report("FAILED", job.id, "The job failed.")
    poll()
    assert Run.objects.get().state == "FAILED"
    assert Run.objects.get().exception == "it went boom"


def test_silence_without_a_report_proves_nothing(engine, poll, report):
    job = engine.job()
    poll()
    silence(engine)
    report("RECONCILING", job.id)
    poll(after_s=3600)
    report("FAILED", "0" * 32)
    poll(after_s=3600)
    assert Run.objects.get().state == "RUNNING"
    assert Outage.objects.get(kind=OutageKind.NO_ANSWER).ended_at is None


def test_the_report_of_an_earlier_end_does_not_end_the_same_job_id_later(engine, poll, report):
    """With high availability, every deployment may have the same job ID."""
    job = engine.job()
    report("FAILED", job.id)
    poll()
    silence(engine)
    poll()
    assert Run.objects.get().state == "RUNNING"


def test_a_cluster_that_answers_is_believed(engine, poll, report):
    job = engine.job()
    poll()
    report("FAILED", job.id)
    poll()
    assert Run.objects.get().state == "RUNNING"


def test_the_next_deployment_is_the_next_run(engine, poll, report):
    job = engine.job()
    poll()
    silence(engine)
    report("FAILED", job.id)
    poll()
    engine.down_with, engine.jobs = None, []
    engine.job(id=job.id, started=round(poll.clock.timestamp() * 1000))
    poll()
    assert list(Job.objects.get().runs.order_by("number").values_list("state", flat=True)) == ["FAILED", "RUNNING"]
    assert Cluster.objects.get().reachable
