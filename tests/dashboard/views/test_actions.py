"""Actions on the pages create the rows that the workers process."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from dashboard.stack.mailbox import store_mail
from monitoring.models import (
    AttemptState,
    IncidentState,
    Job,
    RestartAttempt,
    Run,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=8))
    return job


def test_savepoint_now_stores_a_request(operator: Client, job: Job) -> None:
    response = operator.post(reverse("job-savepoint", args=[job.pk]), follow=True)
    savepoint = Savepoint.objects.get(job=job)
    assert (savepoint.origin, savepoint.requested_by, savepoint.stops_job) == (SavepointOrigin.MANUAL, "olga", False)
    assert "Savepoint requested." in response.content.decode()


def test_a_second_savepoint_is_refused_with_the_reason(operator: Client, job: Job) -> None:
    operator.post(reverse("job-savepoint", args=[job.pk]))
    response = operator.post(reverse("job-savepoint", args=[job.pk]), follow=True)
    assert Savepoint.objects.filter(job=job).count() == 1
    assert "already under way" in response.content.decode()


def test_stop_requires_confirmation(operator: Client, job: Job) -> None:
    assert "Keep the job running" in operator.get(reverse("job-stop", args=[job.pk])).content.decode()
    assert not Savepoint.objects.exists()
    operator.post(reverse("job-stop", args=[job.pk]))
    assert Savepoint.objects.get(job=job).stops_job


def test_the_restart_page_shows_the_run_to_stop_and_the_age_of_the_snapshot(
    operator: Client, job: Job, now: datetime
) -> None:
    assert job.current_run is not None
    savepoint = make.make_savepoint(job.current_run, now - timedelta(minutes=38))
    response = operator.get(reverse("job-restart", args=[job.pk]), {"from": f"savepoint-{savepoint.pk}"})
    page = response.content.decode()
    assert response.context["chosen"].source == savepoint
    assert "run 1, RUNNING" in page
    assert "38 min" in page
    assert not RestartAttempt.objects.exists()


def test_savepoint_on_stop_is_offered_first_for_a_running_job(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    make.make_savepoint(job.current_run, now + timedelta(hours=1))  # the engine's clock is ahead
    address = reverse("job-restart", args=[job.pk])
    response = operator.get(address)
    assert [choice.is_future for choice in response.context["offer"].choices[:2]] == [True, False]
    page = response.content.decode()
    assert "<b>New savepoint, taken when the job stops</b>" in page
    assert 'name="from" value="stop"' in page
    assert "<b>No data is reprocessed.</b>" in page
    assert "Stop the running job" not in page
    response = operator.post(address, {"from": "stop"}, follow=True)
    attempt = RestartAttempt.objects.get(job=job)
    assert (attempt.from_stop, attempt.stop_first, attempt.restore_path) == (True, True, "")
    assert "the savepoint taken when the job stops</dd>" in response.content.decode()


@pytest.mark.parametrize("state", ["RESTARTING", "FAILED"])
def test_stopped_job_cannot_take_a_savepoint(operator: Client, job: Job, state: str) -> None:
    assert job.current_run is not None
    Run.objects.filter(pk=job.current_run.pk).update(state=state)
    address = reverse("job-restart", args=[job.pk])
    assert 'name="from" value="checkpoint-' in operator.get(address).content.decode()
    response = operator.post(address, {"from": "stop"}, follow=True)
    assert "no longer offered" in response.content.decode()
    assert not RestartAttempt.objects.exists()


def test_restart_page_warns_that_a_live_checkpoint_may_be_deleted(operator: Client, job: Job, now: datetime) -> None:
    run = job.current_run
    assert run is not None
    newest = run.checkpoints.first()
    assert newest is not None
    savepoint = make.make_savepoint(run, now)
    text = "if a newer checkpoint has replaced this one, the job keeps running"
    for key, is_said in ((f"checkpoint-{newest.pk}", True), (f"savepoint-{savepoint.pk}", False)):
        page = operator.get(reverse("job-restart", args=[job.pk]), {"from": key}).content.decode()
        assert (text in page or text.replace("&#x27;", "'") in page) is is_said


def test_restart_from_this_savepoint_opens_an_attempt_and_shows_it(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    savepoint = make.make_savepoint(job.current_run, now - timedelta(minutes=38))
    key = f"savepoint-{savepoint.pk}"
    response = operator.post(reverse("job-restart", args=[job.pk]), {"from": key, "stop": "savepoint"}, follow=True)
    attempt = RestartAttempt.objects.get(job=job)
    assert (attempt.savepoint, attempt.restore_path, attempt.stop_first) == (savepoint, savepoint.path, True)
    assert response.redirect_chain == [(reverse("restart-progress", args=[attempt.pk]), 302)]
    assert "fast-tick" in response.content.decode()


def test_a_hung_job_may_be_cancelled_instead_of_saved(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    savepoint = make.make_savepoint(job.current_run, now)
    operator.post(reverse("job-restart", args=[job.pk]), {"from": f"savepoint-{savepoint.pk}", "stop": "cancel"})
    assert not RestartAttempt.objects.get(job=job).stop_first


def test_a_restart_from_a_checkpoint_names_its_path(operator: Client, job: Job) -> None:
    assert job.current_run is not None
    newest = job.current_run.checkpoints.first()
    assert newest is not None
    operator.post(reverse("job-restart", args=[job.pk]), {"from": f"checkpoint-{newest.pk}"})
    assert RestartAttempt.objects.get(job=job).restore_path == newest.external_path


@pytest.mark.parametrize("sent", ["", "savepoint-999999", "/etc/passwd"])
def test_a_snapshot_that_is_not_offered_is_refused(operator: Client, job: Job, sent: str) -> None:
    response = operator.post(reverse("job-restart", args=[job.pk]), {"from": sent}, follow=True)
    assert "no longer offered" in response.content.decode()
    assert not RestartAttempt.objects.exists()


def test_a_savepoint_of_another_job_is_not_offered(operator: Client, job: Job, now: datetime) -> None:
    other = make.make_run(make.make_job(job.cluster, "other"), now)
    stranger = make.make_savepoint(other, now)
    operator.post(reverse("job-restart", args=[job.pk]), {"from": f"savepoint-{stranger.pk}"})
    assert not RestartAttempt.objects.exists()


def test_second_restart_names_the_one_in_progress(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    key = {"from": f"savepoint-{make.make_savepoint(job.current_run, now).pk}"}
    operator.post(reverse("job-restart", args=[job.pk]), key)
    response = operator.post(reverse("job-restart", args=[job.pk]), key, follow=True)
    assert RestartAttempt.objects.count() == 1
    assert "being restarted already" in response.content.decode()


def test_a_job_that_waymark_cannot_start_is_not_stopped_and_the_form_keeps_its_input(
    operator: Client, job: Job, now: datetime
) -> None:
    Job.objects.filter(pk=job.pk).update(launch=None)
    assert job.current_run is not None
    older = f"savepoint-{make.make_savepoint(job.current_run, now - timedelta(minutes=9)).pk}"
    make.make_savepoint(job.current_run, now)
    response = operator.post(reverse("job-restart", args=[job.pk]), {"from": older, "stop": "cancel"}, follow=True)
    page = response.content.decode()
    assert "Nothing was stopped or started" in page
    assert f'name="from" value="{older}"' in page
    assert 'value="cancel" checked' in page
    assert not RestartAttempt.objects.exists()


def test_a_restart_can_be_cancelled_before_anything_happened(operator: Client, job: Job, now: datetime) -> None:
    attempt = make.make_attempt(job, now, AttemptState.DECIDED)
    operator.post(reverse("restart-cancel", args=[attempt.pk]))
    attempt.refresh_from_db()
    assert attempt.state == AttemptState.CANCELED


def test_ended_restart_is_no_longer_polled(operator: Client, job: Job, now: datetime) -> None:
    attempt = make.make_attempt(job, now, old_run=job.current_run, new_run=job.current_run)
    page = operator.get(reverse("restart-progress", args=[attempt.pk])).content.decode()
    assert "Job is running again" in page
    assert "fast-tick" not in page


def test_an_incident_is_acknowledged_then_resolved_each_with_its_note(
    operator: Client, job: Job, now: datetime
) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    operator.post(reverse("incident-acknowledge", args=[incident.pk]), {"note": "looking at the sink"})
    incident.refresh_from_db()
    assert (incident.state, incident.acknowledged_by) == (IncidentState.ACKNOWLEDGED, "olga")
    page = operator.post(reverse("incident-resolve", args=[incident.pk]), {"note": "sink restarted"}, follow=True)
    incident.refresh_from_db()
    assert incident.state == IncidentState.RESOLVED
    assert "looking at the sink" in page.content.decode()
    assert "sink restarted" in page.content.decode()


def test_changed_incident_is_reported(operator: Client, job: Job, now: datetime) -> None:
    rule = make.make_rule(job)
    incident = make.make_incident(rule, now, state=IncidentState.RESOLVED, resolved_at=now)
    page = operator.post(reverse("incident-acknowledge", args=[incident.pk]), follow=True).content.decode()
    assert "resolved already" in page


def test_an_incident_shows_every_try_of_every_delivery(operator: Client, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    make.make_delivery(incident, make.make_channel(), now)
    page = operator.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "connection refused" in page
    assert "250 accepted" in page


def test_stored_mail_is_listed_and_shown_as_text(
    operator: Client, now: datetime, tmp_path: Path, settings: Settings
) -> None:
    settings.MAILBOX_DIR = tmp_path
    content = b"Subject: flights-by-route: 4 checkpoints failed\r\n\r\nSee <script>alert(1)</script>\r\n"
    mail = store_mail(tmp_path, content, "waymark@localhost", ["ops@example.org"], now)
    assert "4 checkpoints failed" in operator.get(reverse("mails")).content.decode()
    page = operator.get(reverse("mail", args=[mail])).content.decode()
    assert "&lt;script&gt;" in page
    assert operator.get(reverse("mail", args=["00000000000000000000-00000000"])).status_code == 404


def test_without_a_mail_sink_there_is_no_mail_page(operator: Client, settings: Settings) -> None:
    settings.MAILBOX_DIR = None
    assert operator.get(reverse("mails")).status_code == 404
    assert reverse("mails") not in operator.get(reverse("clusters")).content.decode()


def test_only_completed_savepoints_offer_a_restart(operator: Client, job: Job, now: datetime) -> None:
    assert job.current_run is not None
    make.make_savepoint(job.current_run, now, state=SavepointState.FAILED, path="", failure="expired")
    page = operator.get(reverse("job-savepoints", args=[job.pk])).content.decode()
    assert "Restart from this savepoint" not in page
    assert "expired" in page


def test_savepoint_search_accepts_any_text(operator: Client) -> None:
    assert operator.get(reverse("savepoints"), {"q": "a\0b'%"}).status_code == 200
