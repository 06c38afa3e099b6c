"""The fleet page lists Waymark's newest activity, and an incident has one line with its present status."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.queries.activity import latest_activity
from monitoring import audit
from monitoring.models import Incident, IncidentEvent, IncidentEventKind, Run, RunState, Savepoint
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(now: datetime) -> Run:
    return make.make_run(make.make_job(make.make_cluster(now), "flights"), now)


def changes(incident: Incident, now: datetime, count: int) -> None:
    for n in range(count):
        text = f"{n + 4} checkpoints of flights failed."
        IncidentEvent.objects.create(
            incident=incident, at=now + timedelta(seconds=n), kind=IncidentEventKind.CHANGED, text=text
        )


def test_an_incident_is_one_line_however_often_it_changes(run: Run, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(run.job), now)
    changes(incident, now, 9)
    output = [h.text for h in latest_activity() if h.url == reverse("incident", args=[incident.pk])]
    assert output == ["12 checkpoints failed."]


def test_savepoint_activity_shows_the_outcome(run: Run, now: datetime) -> None:
    make.make_savepoint(run, now - timedelta(minutes=4))
    audit.record("waymark", "savepoint.request", "job flights", "schedule")
    (result,) = latest_activity()
    assert result.subject == "flights"
    assert "completed" in result.text


def test_many_savepoints_do_not_hide_a_manual_change(run: Run, now: datetime) -> None:
    audit.record("olga", "savepoint.schedule", "job flights", schedule="every 2 min")
    for n in range(20):
        make.make_savepoint(run, now - timedelta(minutes=n))
    assert "olga set the savepoint schedule to every 2 min" in [h.text for h in latest_activity()]


def test_a_stopped_job_says_how_to_start_it_again(operator: Client, run: Run, now: datetime) -> None:
    savepoint = make.make_savepoint(run, now - timedelta(minutes=4))
    Savepoint.objects.filter(pk=savepoint.pk).update(stops_job=True, requested_by="olga")
    Run.objects.filter(pk=run.pk).update(state=RunState.FINISHED, ended_at=now)
    page = operator.get(reverse("job", args=[run.job_id])).content.decode()
    assert "Waymark does not restart a job that was stopped" in page
    start = f"{reverse('job-restart', args=[run.job_id])}?from=savepoint-{savepoint.pk}"
    assert start in page
    assert "No data is reprocessed" in operator.get(start).content.decode()


def test_a_canceled_job_offers_a_choice_of_states(operator: Client, run: Run, now: datetime) -> None:
    Run.objects.filter(pk=run.pk).update(state=RunState.CANCELED, ended_at=now)
    assert "Choose a snapshot to start from" in operator.get(reverse("job", args=[run.job_id])).content.decode()


def test_the_navigation_counts_open_incidents(viewer: Client, run: Run, now: datetime) -> None:
    make.make_incident(make.make_rule(run.job), now)
    page = viewer.get(reverse("nav"), {"section": "fleet"}).content.decode()
    assert 'title="open incidents">1' in page
    assert 'id="nav-fleet" href="/" aria-current="page"' in page
