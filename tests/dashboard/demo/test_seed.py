from __future__ import annotations

from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from dashboard.demo.jobs import DEMO_JOBS
from dashboard.demo.seed import Demo, submit_missing
from monitoring.engine.errors import EngineError
from monitoring.models import Channel, Cluster, Job, Run

pytestmark = pytest.mark.django_db
JOB_ID = "0" * 32


@pytest.fixture
def demo() -> Demo:
    return Demo(Path("/input"), Path("/connections.json"), "http://127.0.0.1:1/webhooks")


@pytest.fixture
def cluster(httpserver: HTTPServer) -> Cluster:
    return Cluster.objects.create(name="waymark", rest_url=httpserver.url_for("").rstrip("/"))


def job_manager_knows(httpserver: HTTPServer, *names: str) -> None:
    jobs = [
        {
            "jid": f"{number:032x}",
            "name": name,
            "state": "RUNNING",
            "start-time": 1,
            "end-time": -1,
            "last-modification": 1,
        }
        for number, name in enumerate(names)
    ]
    httpserver.expect_request("/jobs/overview").respond_with_json({"jobs": jobs})


def job_manager_takes_programs(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/jars/upload", method="POST").respond_with_json(
        {"filename": "/up/load/7_program.py", "status": "success"}
    )
    httpserver.expect_request("/jars/7_program.py/run", method="POST").respond_with_json({"jobid": JOB_ID})


def requested_runs(httpserver: HTTPServer) -> list[dict[str, object]]:
    return [request.get_json() for request, _ in httpserver.log if request.path.endswith("/run")]


def test_both_jobs_are_submitted_and_configured(httpserver: HTTPServer, cluster: Cluster, demo: Demo) -> None:
    job_manager_knows(httpserver)
    job_manager_takes_programs(httpserver)
    assert submit_missing(demo, cluster) == [job.name for job in DEMO_JOBS]
    asked = requested_runs(httpserver)
    assert [body["entryClass"] for body in asked] == [job.entry_class for job in DEMO_JOBS]
    assert len({body["jobId"] for body in asked}) == 2
    for job in Job.objects.all():
        assert job.auto_restart
        assert job.savepoint_interval_s
        assert job.launch["jar_id"] == "7_program.py"
        (rule,) = job.rules.all()
        assert (rule.threshold, rule.window_s, rule.channels.count()) == (3, 900, 2)
    webhook = Channel.objects.get(kind="webhook")
    assert (webhook.settings, webhook.allow_private) == ({"url": "http://127.0.0.1:1/webhooks"}, True)


def test_existing_job_is_not_submitted_again(httpserver: HTTPServer, cluster: Cluster, demo: Demo) -> None:
    job_manager_knows(httpserver, *(job.name for job in DEMO_JOBS))
    assert submit_missing(demo, cluster) == []


def test_a_job_that_ran_once_is_never_submitted_again(httpserver: HTTPServer, cluster: Cluster, demo: Demo) -> None:
    """The job has ended or was canceled. Only recovery, which knows its snapshots, may restart it."""
    from django.utils import timezone

    job_manager_knows(httpserver)
    for demo_job in DEMO_JOBS:
        job = Job.objects.create(cluster=cluster, name=demo_job.name)
        now = timezone.now()
        Run.objects.create(
            job=job, number=1, engine_job_id=JOB_ID, state="CANCELED", observed_at=now, started_at=now, ended_at=now
        )
    assert submit_missing(demo, cluster) == []


def test_start_with_lost_response_is_retried_with_the_same_id(
    httpserver: HTTPServer, cluster: Cluster, demo: Demo
) -> None:
    job_manager_knows(httpserver)
    job_manager_takes_programs(httpserver)
    submit_missing(demo, cluster)
    submit_missing(demo, cluster)
    ids = [body["jobId"] for body in requested_runs(httpserver)]
    assert ids[:2] == ids[2:]


def test_unready_job_manager_is_retried(httpserver: HTTPServer, cluster: Cluster, demo: Demo) -> None:
    httpserver.expect_request("/jobs/overview").respond_with_json({"errors": ["no leader"]}, status=503)
    with pytest.raises(EngineError):
        submit_missing(demo, cluster)


def test_a_refused_upload_raises_an_error_with_the_response(
    httpserver: HTTPServer, cluster: Cluster, demo: Demo
) -> None:
    job_manager_knows(httpserver)
    httpserver.expect_request("/jars/upload").respond_with_json({"errors": ["disk full"]}, status=500)
    with pytest.raises(EngineError, match="disk full"):
        submit_missing(demo, cluster)
