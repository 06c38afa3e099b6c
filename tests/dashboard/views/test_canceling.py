"""The page that cancels a job shows which state is lost, and cancels only the run that it was shown for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from pytest_httpserver import HTTPServer

from monitoring.models import AttemptState, AuditEntry, Cluster, Job, Run, RunState
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

_HIDDEN = re.compile(r'name="(shown_\w+)" value="(\d*)"')
_DELETING = {"externalization": {"enabled": True, "delete_on_cancellation": True}}


@pytest.fixture
def job(now: datetime, httpserver: HTTPServer) -> Job:
    cluster = make.make_cluster(now)
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    job = make.make_job(cluster)
    make.make_run(job, now)
    return job


def address(job: Job) -> str:
    return reverse("job-cancel", args=[job.pk])


def text_of(client: Client, job: Job) -> str:
    return " ".join(client.get(address(job)).content.decode().split())


def shown_on(client: Client, job: Job) -> dict[str, str]:
    return dict(_HIDDEN.findall(client.get(address(job)).content.decode()))


def send(client: Client, job: Job, shown: dict[str, str], reason: str = "wrong output") -> str:
    answer = client.post(address(job), {"reason": reason} | shown, follow=True)
    return " ".join(answer.content.decode().split()).replace("&#x27;", "'")


def expect_cancel(httpserver: HTTPServer, job: Job, status: int = 202) -> None:
    assert job.current_run is not None
    body = {} if status < 300 else {"errors": ["Job is not cancelable."]}
    asked = httpserver.expect_request(
        f"/jobs/{job.current_run.engine_job_id}", method="PATCH", query_string="mode=cancel"
    )
    asked.respond_with_json(body, status=status)


def audited_actions() -> list[str]:
    return list(AuditEntry.objects.filter(action__startswith="job.").order_by("id").values_list("action", flat=True))


def test_page_sends_the_cancel_with_its_reason_and_confirms_it(
    operator: Client, job: Job, httpserver: HTTPServer
) -> None:
    expect_cancel(httpserver, job)
    page = send(operator, job, shown_on(operator, job))
    assert "The cluster accepted the request to cancel run 1." in page
    assert len(httpserver.log) == 1
    entry = AuditEntry.objects.get(action="job.cancel")
    assert (entry.target, entry.reason, entry.actor) == (f"job {job.name}", "wrong output", "olga")
    assert audited_actions() == ["job.cancel", "job.cancel-taken"]


def test_page_shows_the_newest_snapshot_that_remains(operator: Client, job: Job, now: datetime) -> None:
    run = job.current_run
    assert run is not None
    assert "<b>Lost:</b> all state, unless you take a savepoint first." in text_of(operator, job)
    make.make_checkpoints(run, now, make.Shape(count=7))
    make.make_savepoint(run, now - timedelta(minutes=20), path="file:/data/savepoint-older")
    page = text_of(operator, job)
    assert "since checkpoint 7 at" in page
    assert "Delete checkpoints" not in page
    # Without retained checkpoints, only the older savepoint remains.
    Run.objects.update(checkpoint_config=_DELETING)
    page = text_of(operator, job)
    assert "since savepoint older at" in page
    assert "<b>Delete checkpoints:</b>" in page


def test_page_of_another_run_cancels_nothing(operator: Client, job: Job, now: datetime, httpserver: HTTPServer) -> None:
    old = shown_on(operator, job)
    Run.objects.update(state=RunState.FINISHED, ended_at=now)
    make.make_run(job, now, age=timedelta(minutes=20))
    page = send(operator, job, old)
    assert "Nothing was canceled. Run 2 replaced run 1 20 min ago." in page
    assert "The page below shows the current job." in page
    assert (httpserver.log, audited_actions()) == ([], [])


def test_form_without_its_run_cancels_nothing(operator: Client, job: Job, httpserver: HTTPServer) -> None:
    page = send(operator, job, {})
    assert "Nothing was canceled. This page does not belong to the current run of the job, run 1." in page
    assert (httpserver.log, audited_actions()) == ([], [])


def test_reason_is_required(operator: Client, job: Job, httpserver: HTTPServer) -> None:
    answer = operator.post(address(job), shown_on(operator, job) | {"reason": " "})
    assert answer.status_code == 422
    assert "Enter a reason." in answer.content.decode()
    assert (httpserver.log, audited_actions()) == ([], [])


def test_refusal_of_the_engine_is_shown_and_audited(operator: Client, job: Job, httpserver: HTTPServer) -> None:
    expect_cancel(httpserver, job, 400)
    page = send(operator, job, shown_on(operator, job))
    assert "Nothing was canceled." in page
    assert "Job is not cancelable." in page
    assert "The job keeps running." in page
    assert audited_actions() == ["job.cancel", "job.not-canceled"]


def test_lost_response_is_not_a_refusal(operator: Client, job: Job) -> None:
    Cluster.objects.update(rest_url="http://127.0.0.1:1")
    page = send(operator, job, shown_on(operator, job))
    assert "Waymark does not know whether the job was canceled." in page
    assert "Nothing was canceled." not in page
    assert audited_actions() == ["job.cancel", "job.not-canceled"]


def test_restart_or_savepoint_in_progress_prevents_the_cancel(
    operator: Client, job: Job, now: datetime, httpserver: HTTPServer
) -> None:
    operator.post(reverse("job-savepoint", args=[job.pk]))
    assert "<b>A savepoint is in progress.</b> To cancel the job" in text_of(operator, job)
    assert "Nothing was canceled. A savepoint is in progress." in send(operator, job, shown_on(operator, job))
    make.make_attempt(job, now, AttemptState.LAUNCHING)
    assert "<b>Restart 1 is in progress.</b> To cancel the job" in text_of(operator, job)
    assert "Nothing was canceled. Restart 1 is in progress." in send(operator, job, shown_on(operator, job))
    assert (httpserver.log, audited_actions()) == ([], [])


@pytest.mark.parametrize("state", [RunState.CANCELED, RunState.CANCELLING, RunState.FAILED, RunState.LOST])
def test_job_that_has_ended_has_no_form(operator: Client, job: Job, now: datetime, state: RunState) -> None:
    Run.objects.update(state=state, ended_at=now)
    page = text_of(operator, job)
    assert f"<b>There is nothing to cancel:</b> run 1 is {state.value}." in page
    assert "shown_run" not in page.partition('<section class="card">')[2]


def test_menu_of_a_live_job_leads_to_the_page(operator: Client, viewer: Client, job: Job, now: datetime) -> None:
    header = reverse("job-header", args=[job.pk])
    assert address(job) in operator.get(header).content.decode()
    assert address(job) not in viewer.get(header).content.decode()
    Run.objects.update(state=RunState.FAILED, ended_at=now)
    assert address(job) not in operator.get(header).content.decode()
