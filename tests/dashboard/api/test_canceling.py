"""Canceling a job through the API, against an engine that answers over HTTP."""

from __future__ import annotations

from datetime import datetime

import pytest
from pytest_httpserver import HTTPServer

from monitoring.models import AttemptState, AuditEntry, Cluster, Job, Run, RunState
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller


@pytest.fixture
def engine(job: Job, httpserver: HTTPServer) -> HTTPServer:
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    return httpserver


def expect_cancel(engine: HTTPServer, job: Job, status: int = 202) -> None:
    run = job.current_run
    assert run is not None
    body = {} if status < 300 else {"errors": ["Job is not cancelable."]}
    asked = engine.expect_ordered_request(f"/jobs/{run.engine_job_id}", method="PATCH", query_string="mode=cancel")
    asked.respond_with_json(body, status=status)


def audited_actions() -> list[str]:
    return list(AuditEntry.objects.filter(action__startswith="job.").order_by("id").values_list("action", flat=True))


def test_cancel_sends_a_request_to_the_engine(api: Caller, job: Job, engine: HTTPServer) -> None:
    expect_cancel(engine, job)
    answer = api.post(f"/jobs/{job.pk}/cancel", {"reason": "wrong input"})
    assert (answer.status_code, answer.json()["id"]) == (202, job.current_run_id)
    engine.check_assertions()
    entry = AuditEntry.objects.get(action="job.cancel")
    assert Run.objects.get(pk=job.current_run_id).cancel_accepted_at is not None
    assert (entry.target, entry.reason, entry.actor) == (f"job {job.name}", "wrong input", "olga (token token 0)")


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}])
def test_refused_cancel_keeps_the_job_running_and_is_audited(
    api: Caller, job: Job, engine: HTTPServer, headers: dict[str, str]
) -> None:
    expect_cancel(engine, job, 400)
    answer = api.post(f"/jobs/{job.pk}/cancel", **headers)
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "Job is not cancelable." in message
    assert "The job keeps running." in message
    assert audited_actions() == ["job.cancel", "job.not-canceled"]
    assert not Run.objects.filter(cancel_accepted_at__isnull=False).exists()
    # A repeated request is sent to the engine again, also with the same key.
    expect_cancel(engine, job)
    assert api.post(f"/jobs/{job.pk}/cancel", **headers).status_code == 202
    assert audited_actions()[2:] == ["job.cancel", "job.cancel-taken"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}])
def test_lost_response_is_not_a_refusal_and_is_audited(api: Caller, job: Job, headers: dict[str, str]) -> None:
    Cluster.objects.update(rest_url="http://127.0.0.1:1")
    answer = api.post(f"/jobs/{job.pk}/cancel", **headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "unknown")
    assert "Waymark does not know whether the job was canceled." in answer.json()["error"]["message"]
    assert audited_actions() == ["job.cancel", "job.not-canceled"]
    assert not Run.objects.filter(cancel_accepted_at__isnull=False).exists()


@pytest.mark.parametrize("state", [RunState.CANCELED, RunState.FINISHED, RunState.FAILED, RunState.CANCELLING])
def test_a_job_that_has_ended_is_not_canceled(api: Caller, job: Job, engine: HTTPServer, state: RunState) -> None:
    Run.objects.update(state=state)
    refused(api, job, f"The job is already {state.value}.")


def test_restart_or_savepoint_in_progress_prevents_cancel(
    api: Caller, job: Job, engine: HTTPServer, now: datetime
) -> None:
    api.post(f"/jobs/{job.pk}/savepoints")
    refused(api, job, "A savepoint is in progress.")
    attempt = make.make_attempt(job, now, state=AttemptState.LAUNCHING)
    refused(api, job, f"Restart {attempt.epoch} is in progress.")
    Cluster.objects.update(unreachable_since=now)
    refused(api, job, "The cluster does not answer.")


def test_a_job_that_never_ran_is_not_canceled(api: Caller, job: Job) -> None:
    Job.objects.update(current_run=None)
    refused(api, job, "The job has never run.")


@pytest.mark.parametrize(
    ("body", "field"), [({"reason": "x" * 2001}, "reason"), ({"force": True}, "force"), ({"reason": 7}, "reason")]
)
def test_invalid_input_names_the_field_and_sends_nothing(
    api: Caller, job: Job, engine: HTTPServer, body: dict[str, object], field: str
) -> None:
    answer = api.post(f"/jobs/{job.pk}/cancel", body)
    assert answer.status_code == 422
    assert [each["field"].rpartition(".")[2] for each in answer.json()["error"]["fields"]] == [field]
    assert (engine.log, audited_actions()) == ([], [])


def refused(api: Caller, job: Job, why: str) -> None:
    answer = api.post(f"/jobs/{job.pk}/cancel")
    assert answer.status_code == 409
    assert why in answer.json()["error"]["message"]
    assert audited_actions() == []
