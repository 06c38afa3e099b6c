"""Accounts with each of the three roles call every page."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.logs import log_ended_session_as_info
from monitoring.models import IncidentState, Job, Savepoint
from tests.dashboard import builders as make

PAGES = [
    *("job", "job-header", "job-summary", "job-history", "job-configuration", "job-savepoints", "job-alerts"),
    *("job-runs", "job-restarts", "job-exceptions", "job-restart", "job-stop", "job-state", "job-compare"),
    "job-cancel",
]
LISTS = [
    "fleet",
    "nav",
    "incidents",
    "rules",
    "channels",
    "deliveries",
    "maintenance",
    "savepoints",
    "clusters",
    "mails",
    "audit",
    "system-health",
]
ACTIONS = ["job-savepoint", "job-automation", "job-state-ask"]


@pytest.fixture
def job(db: None, now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=3))
    return job


def address(name: str, job: Job) -> str:
    return reverse(name) if name in LISTS else reverse(name, args=[job.pk])


@pytest.mark.parametrize("name", [*PAGES, *LISTS])
def test_anonymous_request_redirects_to_login(stranger: Client, job: Job, name: str) -> None:
    response = stranger.get(address(name, job))
    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("name", [*PAGES, *LISTS])
def test_viewers_and_operators_see_every_page(viewer: Client, operator: Client, job: Job, name: str) -> None:
    assert viewer.get(address(name, job)).status_code == 200
    assert operator.get(address(name, job)).status_code == 200


@pytest.mark.parametrize("name", [*ACTIONS, "job-restart", "job-stop", "job-cancel"])
def test_a_viewer_may_not_act(viewer: Client, job: Job, name: str) -> None:
    response = viewer.post(address(name, job))
    assert response.status_code == 403
    assert "Your account is read-only here" in response.content.decode()
    assert not Savepoint.objects.exists()


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_are_by_post_only(operator: Client, job: Job, name: str) -> None:
    assert operator.get(address(name, job)).status_code == 405


def test_a_viewer_may_not_move_an_incident(viewer: Client, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    assert viewer.post(reverse("incident-resolve", args=[incident.pk])).status_code == 403
    incident.refresh_from_db()
    assert incident.state == IncidentState.OPEN


def test_without_its_csrf_token_an_action_is_refused(operator_user: User, job: Job) -> None:
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(operator_user)
    response = careful.post(reverse("job-savepoint", args=[job.pk]))
    assert response.status_code == 403
    assert "Form not submitted" in response.content.decode()
    assert not Savepoint.objects.exists()


def test_an_outdated_log_in_page_leads_to_the_requested_page(operator_user: User, job: Job) -> None:
    careful = Client(enforce_csrf_checks=True)
    stale = careful.post("/login/?next=/rules/", {"username": "olga", "password": "pw-olga-1"}, follow=True)
    assert stale.redirect_chain == [("/login/?next=/rules/", 302)]
    assert "The log-in page was too old." in stale.content.decode()
    careful.force_login(operator_user)
    assert careful.post("/login/?next=/rules/").headers["Location"] == "/login/?next=/rules/"
    assert careful.get("/login/?next=/rules/").headers["Location"] == "/rules/"


def test_the_health_check_is_open(stranger: Client, db: None) -> None:
    assert stranger.get(reverse("healthz")).json() == {"status": "up"}


def test_pages_forbid_inline_scripts_and_foreign_origins(stranger: Client, db: None) -> None:
    policy = stranger.get(reverse("login")).headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_static_files_need_no_collecting(stranger: Client, db: None) -> None:
    for name in ("css/waymark.css", "js/app.js", "vendor/htmx-2.0.10.min.js", "vendor/plotly-cartesian-4.1.1.min.js"):
        with closing(stranger.get(f"/static/dashboard/{name}")) as response:
            assert response.status_code == 200


def test_live_part_without_a_session_returns_401(stranger: Client, job: Job) -> None:
    response = stranger.get(reverse("fleet"), headers={"HX-Request": "true", "HX-Target": "fleet-live"})
    assert (response.status_code, response.content) == (401, b"")


def test_an_expired_session_is_logged_at_info_level(stranger: Client, db: None, caplog: Any) -> None:
    stranger.get(reverse("nav"), headers={"HX-Request": "true"})
    stranger.get("/api/v1/jobs")
    refused = {record.request.path: record for record in caplog.records if record.name == "django.request"}
    assert all(log_ended_session_as_info(record) for record in refused.values())
    assert {path: record.levelname for path, record in refused.items()} == {
        reverse("nav"): "INFO",
        "/api/v1/jobs": "WARNING",
    }
    assert log_ended_session_as_info.__name__ in settings.LOGGING["handlers"]["stderr"]["filters"]


def test_refusals_are_logged_without_a_traceback(viewer: Client, job: Job, caplog: Any) -> None:
    assert viewer.post("/api/v1/channels", "{}", content_type="application/json").status_code == 403
    assert viewer.get("/api/v1/jobs/987654").status_code == 404
    assert viewer.post(reverse("job-savepoint", args=[job.pk])).status_code == 403
    records = [record for record in caplog.records if record.name == "django.request"]
    assert [(record.levelname, record.exc_info) for record in records] == [
        ("INFO", None),
        ("INFO", None),
        ("WARNING", None),
    ]


def test_live_part_of_another_account_returns_401(
    operator: Client, viewer: Client, operator_user: User, job: Job
) -> None:
    live = {"HX-Request": "true", "X-Reader": str(operator_user.pk)}
    assert operator.get(reverse("nav"), headers=live).status_code == 200
    assert viewer.get(reverse("nav"), headers=live).status_code == 401
    assert f'"X-Reader": "{operator_user.pk}"' in operator.get(reverse("fleet")).content.decode()


@pytest.mark.parametrize(
    ("sent_from", "page"),
    [
        ("http://testserver/jobs/7/savepoints/?page=2", "/jobs/7/savepoints/?page=2"),
        ("https://elsewhere.example/jobs/7/", "/"),
        ("", "/"),
    ],
)
def test_form_without_a_session_changes_nothing_and_returns_to_its_page(
    stranger: Client, job: Job, sent_from: str, page: str
) -> None:
    response = stranger.post(reverse("job-savepoint", args=[job.pk]), headers={"Referer": sent_from}, follow=True)
    assert response.redirect_chain == [(f"{reverse('login')}?{urlencode({'next': page}, safe='/')}", 302)]
    assert "Your session has expired and no action was taken." in response.content.decode()
    assert not Savepoint.objects.exists()


@pytest.mark.parametrize("name", ["job", "job-history", "restart-progress", "incident", "checkpoint", "operator"])
def test_unknown_ids_are_not_found(operator: Client, name: str) -> None:
    response = operator.get(reverse(name, args=[987_654]))
    assert response.status_code == 404
    assert "This page does not exist" in response.content.decode()
