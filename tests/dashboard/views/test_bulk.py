"""An action on several jobs succeeds or fails for each job separately."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AuditEntry, Job, RunState, Savepoint
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
URL = "/jobs/act/"


@pytest.fixture
def jobs(now: datetime) -> list[Job]:
    cluster = make.make_cluster(now)
    made = [make.make_job(cluster, name, labels={"team": "mail"}) for name in ("orders", "mails", "ended")]
    for job in made:
        make.make_run(job, now, state=RunState.FINISHED if job.name == "ended" else RunState.RUNNING)
    return made


def act(client: Client, jobs: list[Job], deed: str, **typed: str) -> str:
    sent = {"jobs": [job.pk for job in jobs], "deed": deed, **typed}
    return " ".join(client.post(URL, sent, follow=True).content.decode().split())


def test_bulk_savepoint_reports_jobs_that_do_not_run(operator: Client, jobs: list[Job]) -> None:
    page = act(operator, jobs, "savepoint")
    assert "<h1>Savepoint now: 2 of 3</h1>" in page
    assert "No savepoint now: the job is FINISHED" in page
    assert sorted(Savepoint.objects.values_list("job__name", flat=True)) == ["mails", "orders"]
    assert AuditEntry.objects.filter(action="savepoint.request", actor="olga").count() == 2


def test_outcome_page_can_be_reloaded(operator: Client, viewer: Client, jobs: list[Job]) -> None:
    sent = {"jobs": [job.pk for job in jobs], "deed": "savepoint"}
    assert operator.post(URL, sent).headers["Location"] == URL
    for _loaded in range(2):
        assert "Savepoint now: 2 of 3" in operator.get(URL).content.decode()
    assert Savepoint.objects.count() == 2
    jobs[0].delete()
    assert "1 of 2" in operator.get(URL).content.decode()
    assert viewer.get(URL).headers["Location"] == reverse("fleet"), "a user who changed nothing sees no result"


def test_bulk_stop_requires_confirmation(operator: Client, jobs: list[Job]) -> None:
    page = act(operator, jobs[:2], "stop")
    assert "Stop 2 jobs, each with a savepoint?" in page
    assert not Savepoint.objects.exists()
    assert "2 of 2" in act(operator, jobs[:2], "stop", confirmed="on")
    assert Savepoint.objects.filter(stops_job=True).count() == 2


def test_bulk_action_covers_all_matching_pages(operator: Client, jobs: list[Job], now: datetime) -> None:
    cluster = jobs[0].cluster
    for n in range(60):
        make.make_run(make.make_job(cluster, f"more-{n:02}"), now)
    page = act(operator, [], "label", labels="env=prod", matching="q=more-")
    assert "60 of 60" in page
    assert Job.objects.filter(labels__env="prod").count() == 60
    assert "60 jobs" in act(operator, jobs[:1], "stop", matching="q=more-")  # only the jobs that match are selected
    assert "Select at least one job." in act(operator, [], "label", labels="a=b", matching="labels===")


def test_labels_are_added_and_removed(operator: Client, jobs: list[Job]) -> None:
    act(operator, jobs[:2], "label", labels="env=prod, team=payments")
    assert [job.labels for job in Job.objects.order_by("name")] == [
        {"team": "mail"},
        {"team": "payments", "env": "prod"},
        {"team": "payments", "env": "prod"},
    ]
    assert "2 of 2" in act(operator, jobs[1:], "unlabel", labels="env=prod, team=mail")
    assert Job.objects.get(name="mails").labels == {"team": "payments"}
    assert Job.objects.get(name="ended").labels == {}
    assert "0 of 1" in act(operator, jobs[2:], "unlabel", labels="team=mail")
    entry = AuditEntry.objects.filter(target="job orders").latest("pk")
    assert entry.details["was"] == {"labels": {"team": "mail"}}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"deed": "savepoint"}, "Jobs: Select at least one job. No job was changed."),
        ({"deed": "savepoint", "jobs": ["999999"]}, "Jobs: Job 999999 does not exist or was removed."),
        ({"deed": "savepoint", "jobs": ["<b>"]}, "Jobs: “&lt;b&gt;” is not a job ID."),
        ({"deed": "explode"}, "Action: Select a valid choice."),
        ({"deed": "label", "labels": ""}, "Labels: Enter at least one label"),
        ({"deed": "label", "labels": "=x"}, "Labels: "),
    ],
)
def test_invalid_bulk_form_is_reported(
    operator: Client, jobs: list[Job], sent: dict[str, object], expected: str
) -> None:
    chosen = {"jobs": [job.pk for job in jobs]} if sent["deed"] != "savepoint" else {}
    assert expected in operator.post(URL, chosen | sent, follow=True).content.decode()
    assert not Savepoint.objects.exists()
    assert not AuditEntry.objects.filter(actor="olga").exists()


def test_viewer_cannot_use_bulk_actions(viewer: Client, jobs: list[Job]) -> None:
    assert viewer.post(URL, {"jobs": [jobs[0].pk], "deed": "savepoint"}).status_code == 403
    assert 'id="bulk"' not in viewer.get(reverse("fleet")).content.decode()
