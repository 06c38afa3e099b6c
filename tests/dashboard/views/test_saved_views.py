"""The fleet filtered by labels, saved views, and the search box."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Job, SavedView
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def jobs(now: datetime) -> list[Job]:
    cluster = make.make_cluster(now)
    cluster.labels = {"env": "prod"}
    cluster.save()
    return [
        make.make_job(cluster, name, labels=labels)
        for name, labels in (
            ("orders", {"team": "payments"}),
            ("order-mail", {"team": "mail", "env": "dev"}),
            ("x", {}),
        )
    ]


def shown(client: Client, **filters: str) -> list[str]:
    return sorted(row.facts.job.name for row in client.get(reverse("fleet"), filters).context["fleet"].shown.rows)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("team=payments", ["orders"]),
        ("env=prod", ["orders", "x"]),
        ("team", ["order-mail", "orders"]),
        ("job=order*,env!=dev", ["orders"]),
        ("", ["order-mail", "orders", "x"]),
    ],
)
def test_the_fleet_is_filtered_by_labels(viewer: Client, jobs: list[Job], labels: str, names: list[str]) -> None:
    assert shown(viewer, labels=labels) == names


def test_invalid_labels_are_reported_and_the_field_keeps_them(viewer: Client, jobs: list[Job]) -> None:
    page = viewer.get(reverse("fleet"), {"labels": "team=<b>,="}).content.decode()
    assert "“=” is not a term" in page
    assert 'value="team=&lt;b&gt;,="' in page
    assert shown(viewer, labels="team=<b>,=") == []


def test_a_view_is_saved_opened_and_deleted(viewer: Client, viewer_user: User, jobs: list[Job]) -> None:
    typed = {"name": "Payments", "query": "page=3&labels=team%3Dpayments&q=&nonsense=1"}
    page = viewer.post(reverse("view-save"), typed, follow=True).content.decode()
    view = SavedView.objects.get(user=viewer_user)
    assert view.query == "labels=team%3Dpayments"
    assert f'href="/?{view.query}" aria-current="true">Payments</a>'.replace("&", "&amp;") in page
    assert "Save view" not in page

    viewer.post(reverse("view-save"), {"name": "Payments", "query": "state=failing"})
    assert SavedView.objects.get(user=viewer_user).query == "state=failing"
    viewer.post(reverse("view-forget", args=[view.pk]))
    assert not SavedView.objects.exists()


def test_a_view_keeps_the_order_of_the_list(viewer: Client, viewer_user: User, jobs: list[Job]) -> None:
    typed = {"name": "Largest", "query": "order=desc&upto=2&sort=size"}
    page = viewer.post(reverse("view-save"), typed, follow=True).content.decode()
    assert SavedView.objects.get(user=viewer_user).query == "sort=size&order=desc"
    assert 'href="/?sort=size&amp;order=desc" aria-current="true">Largest</a>' in page


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"name": "", "query": "state=failing"}, "Name: This field is required."),
        ({"name": "x" * 61, "query": "state=failing"}, "Name: Ensure this value has at most 60 characters"),
        ({"name": "all", "query": "page=2"}, "Filter: There is no filter to save"),
    ],
)
def test_an_invalid_view_is_reported(viewer: Client, typed: dict[str, str], expected: str) -> None:
    assert expected in viewer.post(reverse("view-save"), typed, follow=True).content.decode()
    assert not SavedView.objects.exists()


def test_views_are_visible_only_to_their_owner(
    viewer: Client, operator: Client, operator_user: User, jobs: list[Job]
) -> None:
    view = SavedView.objects.create(user=operator_user, name="<i>zebra</i>", query="state=failing")
    assert viewer.post(reverse("view-forget", args=[view.pk])).status_code == 404
    assert "zebra" not in viewer.get(reverse("fleet"), {"state": "failing"}).content.decode()
    assert "&lt;i&gt;zebra&lt;/i&gt;" in operator.get(reverse("fleet"), {"state": "failing"}).content.decode()


def found(client: Client, text: str) -> list[tuple[str, str]]:
    return [(hit.kind, hit.name) for hit in client.get(reverse("find"), {"q": text}).context["hits"]]


def test_the_search_box_finds_jobs_clusters_and_pages(viewer: Client, jobs: list[Job]) -> None:
    assert found(viewer, "order") == [("job", "order-mail"), ("job", "orders")]
    assert found(viewer, "MAIL") == [("job", "order-mail")]
    assert ("cluster", jobs[0].cluster.name) in found(viewer, jobs[0].cluster.name[:4])
    assert found(viewer, "chann") == [("page", "Channels")]
    assert ("page", "Fleet") in found(viewer, "")
    assert "No results for “&lt;nobody&gt;”" in viewer.get(reverse("find"), {"q": "<nobody>"}).content.decode()


def test_an_incident_is_found_by_its_number(viewer: Client, jobs: list[Job], now: datetime) -> None:
    incident = make.make_incident(make.make_rule(jobs[0]), now)
    assert found(viewer, f"#{incident.pk}")[0] == ("incident", f"#{incident.pk}")
    assert found(viewer, "9" * 30) == []
