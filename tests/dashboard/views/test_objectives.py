"""Objectives are set for one job, jobs by label or all jobs, by operators of these jobs only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Account, AuditEntry, Grant, Job, Objective, ObjectiveBudget
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
VALUES = {"scope": "everything", "percent": "99.5", "limit_ms": "45 s", "days": "7"}


@pytest.fixture
def job(now: datetime) -> Job:
    return make.make_job(make.make_cluster(now), "flights", labels={"team": "air"})


def set_up(client: Client, **values: str) -> Any:
    return client.post(reverse("objective-new"), VALUES | values)


def test_an_objective_of_all_jobs_is_stored_and_audited(operator: Client) -> None:
    assert set_up(operator).headers["Location"] == reverse("objectives")
    found = Objective.objects.get()
    assert (found.job, found.selector, found.percent, found.limit_ms, found.days) == (None, "", 99.5, 45_000, 7)
    assert AuditEntry.objects.get(action="objective.change").details["now"]["percent"] == "99.5"
    assert "99.5 % of the checkpoints in less than 45 s over 7 days" in operator.get("/objectives/").content.decode()


def test_an_objective_of_one_job_is_set_from_its_page(operator: Client, job: Job) -> None:
    address = f"{reverse('objective-new')}?job={job.pk}"
    assert f'href="{address}"' in operator.get(reverse("job-alerts", args=[job.pk])).content.decode()
    response = operator.post(address, VALUES)
    assert response.headers["Location"] == reverse("job-alerts", args=[job.pk])
    assert Objective.objects.get().job == job
    assert operator.get(address).headers["Location"] == reverse("objective", args=[Objective.objects.get().pk])


def test_a_job_is_named_in_the_form(operator: Client, job: Job) -> None:
    assert set_up(operator, scope="job", job="flights").status_code == 302
    assert Objective.objects.get().job == job
    again = set_up(operator, scope="job", job="flights")
    assert again.status_code == 422
    assert "already has an objective" in again.content.decode()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"percent": "100"}, "percent"),
        ({"percent": "nan"}, "percent"),
        ({"limit_ms": "30"}, "limit_ms"),
        ({"days": "91"}, "days"),
        ({"scope": "selector"}, "selector"),
        ({"scope": "selector", "selector": "a==b"}, "selector"),
        ({"scope": "job", "job": "none"}, "job"),
    ],
)
def test_invalid_values_are_explained(operator: Client, values: dict[str, str], field: str) -> None:
    response = set_up(operator, **values)
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [field]
    assert not Objective.objects.exists()


def test_two_objectives_of_the_same_jobs_are_refused(operator: Client) -> None:
    set_up(operator, scope="selector", selector="team=air")
    assert set_up(operator, scope="selector", selector="team=air").status_code == 422
    set_up(operator)
    assert set_up(operator).status_code == 422


def test_an_objective_is_changed(operator: Client, job: Job, now: datetime) -> None:
    found = make.make_objective(job, now)
    assert operator.post(reverse("objective", args=[found.pk]), VALUES).status_code == 302
    found.refresh_from_db()
    assert (found.job, found.percent, found.limit_ms) == (job, 99.5, 45_000)


def test_deleting_an_objective_needs_a_confirmation(operator: Client, job: Job, now: datetime) -> None:
    found = make.make_objective(job, now)
    address = reverse("objective-remove", args=[found.pk])
    assert "Delete the objective of the job flights?" in operator.get(address).content.decode()
    assert Objective.objects.exists()
    assert operator.post(address).headers["Location"] == reverse("job-alerts", args=[job.pk])
    assert not Objective.objects.exists()


def test_a_viewer_sees_objectives_and_cannot_change_them(viewer: Client, job: Job, now: datetime) -> None:
    found = make.make_objective(job, now)
    page = viewer.get(reverse("objective", args=[found.pk]))
    assert "<fieldset disabled>" in page.content.decode()
    assert viewer.post(reverse("objective", args=[found.pk]), VALUES).status_code == 403
    assert viewer.get(reverse("objective-new")).status_code == 403


def test_an_operator_of_one_cluster_sets_only_objectives_of_its_jobs(job: Job) -> None:
    user = User.objects.create_user("grace")
    Account.objects.create(user=user, granted_only=True)
    Grant.objects.create(user=user, role="operator", cluster=job.cluster, created_at=job.created_at, created_by="ada")
    client = Client()
    client.force_login(user)
    assert set_up(client).status_code == 422
    assert set_up(client, scope="job", job="flights").status_code == 302
    other = Objective.objects.create(percent=99, limit_ms=1, days=1)
    assert client.post(reverse("objective", args=[other.pk]), VALUES).status_code in (403, 404)


def test_the_job_shows_its_budget(operator: Client, job: Job, now: datetime) -> None:
    make.make_run(job, now)
    assert "Budget of the objective" not in operator.get(reverse("job", args=[job.pk])).content.decode()
    make.make_objective(job, now, counted=10_000, missed=90)
    page = operator.get(reverse("job", args=[job.pk])).content.decode()
    assert "10 % left" in page
    assert "90 of 10,000 missed" in page
    alerts = operator.get(reverse("job-alerts", args=[job.pk])).content.decode()
    assert "99 % of the checkpoints in less than 30 s over 30 days" in alerts


def test_the_fleet_has_a_column_if_a_job_has_an_objective(operator: Client, job: Job, now: datetime) -> None:
    others = [make.make_job(job.cluster, name) for name in ("parcels", "trains")]
    for each in (job, *others):
        make.make_run(each, now)
    assert "Budget left" not in operator.get(reverse("fleet")).content.decode()
    make.make_objective(job, now, missed=40)
    make.make_objective(others[0], now, missed=120)
    page = operator.get(reverse("fleet"), {"sort": "objective", "order": "asc"})
    assert [row.facts.name for row in page.context["fleet"].shown.rows] == ["parcels", "flights", "trains"]
    assert '<span class="level level-failing"' in page.content.decode()
    assert "−20 %" in page.content.decode()
    page = operator.get(reverse("fleet"), {"sort": "objective", "order": "desc"})
    assert [row.facts.name for row in page.context["fleet"].shown.rows] == ["flights", "parcels", "trains"]


def test_the_list_counts_jobs_and_used_up_budgets(operator: Client, job: Job, now: datetime) -> None:
    make.make_job(job.cluster, "trains")
    make.make_objective(job, now, missed=100)
    Objective.objects.create(percent=99, limit_ms=1000, days=7)
    rows = operator.get(reverse("objectives")).context["rows"]
    assert [(row.objective.job, row.jobs, row.missed) for row in rows] == [(None, 1, 0), (job, 1, 1)]
    assert ObjectiveBudget.objects.get().left_percent == 0
