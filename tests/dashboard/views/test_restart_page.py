"""The page before a restart shows the events after the snapshot, and the number of rows that are processed again."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import escape
from pytest_httpserver import HTTPServer

from monitoring.models import AttemptState, ChangeKind, ConfigurationChange, Job, LaunchOrigin, LaunchVersion, Savepoint
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime, httpserver: HTTPServer) -> Job:
    cluster = make.make_cluster(now)
    cluster.rest_url = httpserver.url_for("").rstrip("/")
    cluster.save()
    job = make.make_job(cluster)
    old = make.make_run(job, now, age=timedelta(hours=2))
    spec = {**(job.launch or {}), "jar_id": "older.py", "parallelism": 7}
    old.launch_version = LaunchVersion.objects.create(
        job=job, number=1, spec=spec, origin=LaunchOrigin.FOUND, created_at=old.started_at
    )
    old.save()
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=8, failed=frozenset({1, 3})))
    return job


@pytest.fixture
def older(job: Job, now: datetime) -> Savepoint:
    return make.make_savepoint(job.runs.get(number=1), now - timedelta(minutes=100))


def page_of(client: Client, job: Job, savepoint: Savepoint) -> str:
    page = client.get(reverse("job-restart", args=[job.pk]), {"from": f"savepoint-{savepoint.pk}"})
    return " ".join(page.content.decode().split())


def test_the_page_shows_what_happened_after_the_snapshot(
    operator: Client, job: Job, older: Savepoint, now: datetime
) -> None:
    for minutes, key in ((5, "interval"), (4, "timeout"), (300, "mode")):
        ConfigurationChange.objects.create(
            job=job, at=now - timedelta(minutes=minutes), part="checkpointing", key=key, kind=ChangeKind.CHANGED
        )
    page = page_of(operator, job, older)
    assert "6 checkpoints completed · 2 failed · 1 run started" in page
    assert "version 1</a> of the program. The new run uses a different program, parallelism." in page
    assert "Changed settings</a>: interval, timeout<" in page


def test_the_page_shows_no_events_after_the_newest_snapshot(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    assert "Since then:" not in page_of(operator, job, make.make_savepoint(job.current_run, now))


def restarted(job: Job, now: datetime, *seconds: int, **fields: Any) -> None:
    """Create restarts that took so many seconds, the oldest first."""
    for took in seconds:
        at = now - timedelta(days=1) + timedelta(minutes=job.restart_attempts.count())
        given: dict[str, Any] = {"old_run": job.current_run, "ended_at": at + timedelta(seconds=took)}
        make.make_attempt(job, at, **given | fields)


def test_time_until_running_is_the_median_of_the_last_ten_restarts(
    operator: Client, job: Job, older: Savepoint, now: datetime
) -> None:
    restarted(job, now, 600, 600, 20, 22, 24, 26, 28, 30, 32, 34, 36, 90)
    text = (
        "<b>RUNNING in about 29 s:</b> the median of the last 10 successful restarts of this job (20 s to 1 min 30 s)."
    )
    assert text in page_of(operator, job, older)
    # The page that first stops the job with a savepoint shows it, too.
    assert text in " ".join(operator.get(reverse("job-restart", args=[job.pk])).content.decode().split())


def test_time_until_running_needs_three_successful_restarts(
    operator: Client, job: Job, older: Savepoint, now: datetime
) -> None:
    restarted(job, now, 20, 22)
    restarted(job, now, 24, state=AttemptState.FAILED)
    restarted(job, now, 24, old_run=None)
    other = make.make_job(job.cluster, "other")
    make.make_run(other, now)
    restarted(other, now, 24)
    assert "RUNNING in about" not in page_of(operator, job, older)
    restarted(job, now, 24)
    assert "<b>RUNNING in about 22 s:</b> the median of the last 3 successful restarts" in page_of(operator, job, older)


@pytest.mark.parametrize("name", ["job-restart", "job-stop", "job-cancel", "rule-kinds"])
def test_a_job_name_cannot_change_the_direction_of_the_heading(operator: Client, job: Job, name: str) -> None:
    Job.objects.filter(pk=job.pk).update(name="<i>\u202eseats")
    query = {"job": job.pk} if name == "rule-kinds" else {}
    page = operator.get(reverse(name, args=[] if query else [job.pk]), query).content.decode()
    heading = page.partition("<h1>")[2].partition("</h1>")[0]
    assert "<bdi>&lt;i&gt;\u202eseats</bdi>" in heading


@pytest.mark.parametrize(
    "page",
    ["/incidents/?state=open&page=2", "http://testserver/jobs/?q=a%26b", "/savepoints/"],
)
def test_cancel_leads_back_to_the_page_the_reader_came_from(
    operator: Client, job: Job, older: Savepoint, page: str
) -> None:
    address, path = reverse("job-restart", args=[job.pk]), page.removeprefix("http://testserver")
    sent = f"http://testserver{path}"
    assert operator.get(address, headers={"referer": sent}).context["back"] == path
    kept = {"from": f"savepoint-{older.pk}", "back": path}
    shown = operator.get(address, kept, headers={"referer": f"http://testserver{address}"})
    assert f'<a class="button" href="{escape(path)}">Cancel</a>' in shown.content.decode()
    links = re.findall(r'href="\?from=[^"]*back=([^"]*)"', shown.content.decode())
    assert links
    assert {unquote(link) for link in links} == {path}
    refused = operator.post(address, kept | {"from": "nonsense"}, follow=True)
    assert refused.context["back"] == path


@pytest.mark.parametrize(
    "page",
    [
        *("", "https://evil.example/", "//evil.example/", "http://testserver//evil.example/", "///evil.example"),
        *("/\\evil.example", "javascript:alert(1)", "incidents/", "?from=stop", "http://testserver:1/"),
    ],
)
def test_cancel_leads_to_the_job_instead_of_another_site(operator: Client, job: Job, page: str) -> None:
    address = reverse("job-restart", args=[job.pk])
    assert operator.get(address, headers={"referer": page}).context["back"] == reverse("job", args=[job.pk])
    assert operator.get(address, {"back": page}).context["back"] == reverse("job", args=[job.pk])
    refused = operator.post(address, {"from": "nonsense", "back": page})
    assert refused["Location"] == address


def test_cancel_never_leads_to_the_restart_or_the_log_in(operator: Client, job: Job) -> None:
    address = reverse("job-restart", args=[job.pk])
    for page in (address, f"{address}?from=stop", f"{reverse('login')}?next={address}"):
        shown = operator.get(address, headers={"referer": f"http://testserver{page}"})
        assert shown.context["back"] == reverse("job", args=[job.pk])


VERTICES = [
    {"id": "a", "duration": 60_000, "metrics": {"read-records": 0, "write-records": 6_000}},
    {"id": "b", "duration": 60_000, "metrics": {"read-records": 6_000, "write-records": 99}},
    {"id": "c", "duration": 30_000, "metrics": {"read-records": 600, "write-records": 0}},
]
NODES = [{"id": "b", "inputs": [{"id": "a"}]}, {"id": "a"}, {"id": "c", "inputs": []}]


def rows_again(client: Client, job: Job, savepoint: Savepoint) -> str:
    url = reverse("restart-rows", args=[job.pk])
    return client.get(url, {"from": f"savepoint-{savepoint.pk}"}).content.decode()


def test_rows_to_read_again_are_estimated_from_the_rates_of_all_sources(
    viewer: Client, job: Job, older: Savepoint, httpserver: HTTPServer, now: datetime
) -> None:
    assert job.current_run is not None
    job.runs.filter(pk=job.current_run.pk).update(ended_at=now)
    path = f"/jobs/{job.current_run.engine_job_id}"
    httpserver.expect_request(path).respond_with_json({"vertices": VERTICES, "plan": {"nodes": NODES}})
    # Sources with 100 and 20 rows a second, from the savepoint to the end of the run, rounded to two digits.
    assert "about <b>720,000 rows</b>" in rows_again(viewer, job, older)


# The engine also reports these values for a source whose rows it does not count.
NO_ROWS = [{"id": "a", "duration": 60_000, "metrics": {"read-records": 0, "write-records": 0}}]


@pytest.mark.parametrize(
    "answer",
    [
        {"vertices": VERTICES},
        {"vertices": [], "plan": {"nodes": []}},
        {"vertices": NO_ROWS, "plan": {"nodes": [{"id": "a"}]}},
        "nonsense",
        None,
    ],
)
def test_without_rates_of_the_engine_no_rows_are_estimated(
    viewer: Client, job: Job, older: Savepoint, httpserver: HTTPServer, answer: object
) -> None:
    assert job.current_run is not None
    if answer is not None:
        path = f"/jobs/{job.current_run.engine_job_id}"
        httpserver.expect_request(path).respond_with_data(json.dumps(answer), content_type="application/json")
    assert "row" not in rows_again(viewer, job, older)
