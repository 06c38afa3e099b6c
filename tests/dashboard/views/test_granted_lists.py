"""Lists show the button of a deed where the reader may do it: an account with grants acts on some rows only."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from monitoring.models import Account, AutomationPause, Grant, Incident, IncidentState, MaintenanceWindow, Notification
from tests.dashboard.access.scene import Rows, rows_of_every_kind


@pytest.fixture
def acted(db: None, now: datetime) -> Rows:
    return rows_of_every_kind(now, "acted")


@pytest.fixture
def seen(db: None, now: datetime, acted: Rows) -> Rows:
    return rows_of_every_kind(now, "seen")


@pytest.fixture
def granted(acted: Rows, seen: Rows, now: datetime) -> Client:
    """Operator of one cluster, viewer of another, by grants alone."""
    user = User.objects.create_user("grace")
    Account.objects.create(user=user, granted_only=True)
    for role, rows in (("operator", acted), ("viewer", seen)):
        Grant.objects.create(user=user, role=role, cluster=rows.cluster, created_at=now, created_by="admin")
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def test_the_fleet_offers_to_choose_the_jobs_it_may_act_on(granted: Client, acted: Rows, seen: Rows) -> None:
    fleet = page(granted, "/")
    assert 'class="chosen-bar"' in fleet
    assert f'name="jobs" value="{acted.job.pk}"' in fleet
    assert f'name="jobs" value="{seen.job.pk}"' not in fleet


def test_incidents_are_acknowledged_where_it_acts(granted: Client, acted: Rows, seen: Rows) -> None:
    mine, other = acted.ids["incidents"], seen.ids["incidents"]
    listed = page(granted, "/incidents/")
    assert f'value="{mine}" aria-label="Choose incident' in listed
    assert f'value="{other}" aria-label="Choose incident' not in listed
    granted.post("/incidents/acknowledge/", {"incident": [mine, other]})
    states = dict(Incident.objects.filter(pk__in=[mine, other]).values_list("pk", "state"))
    assert states == {mine: IncidentState.ACKNOWLEDGED, other: IncidentState.OPEN}


def test_maintenance_is_planned_and_ended_where_it_acts(granted: Client, acted: Rows, seen: Rows) -> None:
    listed = page(granted, "/maintenance/")
    assert f"/maintenance/{acted.ids['maintenance']}/end/" in listed
    assert f"/maintenance/{seen.ids['maintenance']}/end/" not in listed
    assert '<option value="acted-job">' in listed
    assert '<option value="seen-job">' not in listed
    assert 'value="selector"' not in listed
    typed = {"scope": "cluster", "cluster": seen.cluster.pk, "lasts": "1 h", "reason": "x"}
    assert granted.post("/maintenance/", typed).status_code == 422
    assert granted.post("/maintenance/", typed | {"cluster": acted.cluster.pk}).status_code == 302
    assert MaintenanceWindow.objects.filter(cluster=acted.cluster).exists()


def test_the_automation_is_paused_where_it_acts(granted: Client, acted: Rows, seen: Rows, now: datetime) -> None:
    listed = page(granted, "/automation/")
    assert f"/automation/pauses/{acted.ids['pauses']}/end/" in listed
    assert f"/automation/pauses/{seen.ids['pauses']}/end/" not in listed
    assert granted.post("/automation/", {"cluster": "", "reason": "all of it"}).status_code == 422
    AutomationPause.objects.filter(cluster=acted.cluster).update(ended_at=now)
    assert granted.post("/automation/", {"cluster": acted.cluster.pk, "reason": "mine"}).status_code == 302


def test_a_viewer_is_offered_nothing(viewer: Client, acted: Rows) -> None:
    for address, button in (
        ("/", "chosen-bar"),
        ("/incidents/", "Choose incident"),
        ("/maintenance/", "Plan the window"),
        ("/automation/", "/end/"),
    ):
        assert button not in page(viewer, address)


def test_messages_are_those_of_what_it_sees_and_are_tried_again_where_it_acts(
    granted: Client, acted: Rows, seen: Rows, now: datetime
) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    ids = {name: rows.ids["messages"] for name, rows in (("acted", acted), ("seen", seen), ("hidden", hidden))}
    listed = page(granted, "/messages/")
    assert {name: f"/messages/{pk}/" in listed for name, pk in ids.items()} == {
        "acted": True,
        "seen": True,
        "hidden": False,
    }
    assert [granted.get(f"/messages/{pk}/").status_code for pk in ids.values()] == [200, 200, 404]
    retried = [granted.post(f"/messages/{pk}/retry/").status_code for pk in ids.values()]
    assert retried == [302, 403, 404]
    by_api = [granted.get(f"/api/v1/messages/{pk}").status_code for pk in ids.values()]
    assert by_api == [200, 200, 404]


def test_a_message_that_also_tells_of_what_is_hidden_is_not_there(granted: Client, acted: Rows, now: datetime) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    told = Notification.objects.filter(delivery=hidden.ids["messages"])
    assert told.update(delivery=acted.ids["messages"]) == 1
    assert granted.get(f"/messages/{acted.ids['messages']}/").status_code == 404
