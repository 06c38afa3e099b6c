"""The pages pause the automation and close breakers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AuditEntry, AutomationPause, Job, RestartDecision, Verdict
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return job


def test_automation_is_paused_and_resumed(operator: Client, job: Job, now: datetime) -> None:
    operator.post(reverse("automation"), {"cluster": "", "lasts": "2 h", "reason": "Disks are replaced."})
    pause = AutomationPause.objects.get()
    assert (pause.cluster, pause.author, pause.reason) == (None, "olga", "Disks are replaced.")
    assert pause.until is not None
    assert timedelta(hours=1, minutes=59) < pause.until - now < timedelta(hours=2, minutes=1)
    page = operator.get(reverse("automation")).content.decode()
    assert "Disks are replaced." in page
    operator.post(reverse("automation-end-pause", args=[pause.pk]))
    pause.refresh_from_db()
    assert (pause.ended_by, pause.ended_at is not None) == ("olga", True)
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"automation.pause", "automation.resume"}


def test_cluster_pause_lasts_until_it_is_ended(operator: Client, job: Job) -> None:
    operator.post(reverse("automation"), {"cluster": job.cluster_id, "lasts": "", "reason": "Upgrade"})
    assert AutomationPause.objects.get(cluster=job.cluster).until is None


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ({"reason": ""}, "reason", "Enter the reason for the pause"),
        ({"reason": "x", "lasts": "5 s"}, "lasts", "is not allowed"),
        ({"reason": "x", "cluster": "99999"}, "cluster", "Select a valid choice"),
    ],
)
def test_invalid_pause_keeps_its_input(
    operator: Client, job: Job, typed: dict[str, str], field: str, expected: str
) -> None:
    response = operator.post(reverse("automation"), typed)
    assert response.status_code == 422
    assert expected in str(response.context["form"].errors[field])
    assert not AutomationPause.objects.exists()


def test_breaker_is_closed_with_a_note(operator: Client, job: Job, now: datetime) -> None:
    Job.objects.filter(pk=job.pk).update(breaker_opened_at=now)
    assert "Close the breaker" in operator.get(reverse("job-restarts", args=[job.pk])).content.decode()
    operator.post(reverse("job-close-breaker", args=[job.pk]), {"note": "more disk"})
    job.refresh_from_db()
    assert job.breaker_opened_at is None
    assert AuditEntry.objects.get(action="restart.breaker-close").reason == "more disk"


def test_decisions_are_shown_with_their_facts(viewer: Client, job: Job, now: datetime) -> None:
    RestartDecision.objects.create(
        job=job, at=now, verdict=Verdict.LEAVE, reason="<b>the cluster does not answer</b>", facts={"died_at": "12:00"}
    )
    page = viewer.get(reverse("automation")).content.decode()
    assert "&lt;b&gt;the cluster does not answer" in page
    assert "died at" in page


def test_viewer_sees_the_page_and_cannot_act(viewer: Client, job: Job) -> None:
    assert viewer.get(reverse("automation")).status_code == 200
    assert viewer.post(reverse("automation"), {"reason": "x"}).status_code == 403
    assert viewer.post(reverse("job-close-breaker", args=[job.pk])).status_code == 403
