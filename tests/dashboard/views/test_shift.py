"""The shift summary shows what the reader may see, and channels send it at set times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Account, AttemptState, Channel, Grant, Outage, OutageKind, SavepointState
from monitoring.notify.summaries import write_due
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def eventful(now: datetime) -> Any:
    """Return a job with one incident, restart, failed savepoint, outage and failed checkpoint in the last hours."""
    job = make.make_job(make.make_cluster(now, "eu-prod"), "flights")
    run = make.make_run(job, now)
    make.make_checkpoints(run, now, make.Shape(count=5, failed=frozenset({1})))
    make.make_incident(make.make_rule(job), now - timedelta(minutes=9))
    make.make_attempt(job, now - timedelta(hours=9), AttemptState.SUCCEEDED)
    make.make_savepoint(run, now - timedelta(hours=2), state=SavepointState.FAILED, completed_at=None, failure="Full.")
    began = {"began_at": now - timedelta(minutes=90), "ended_at": now - timedelta(minutes=30)}
    Outage.objects.create(cluster=job.cluster, kind=OutageKind.NO_ANSWER, **began)
    return job


def test_the_last_twelve_hours_are_shown(viewer: Client, eventful: Any) -> None:
    page = viewer.get(reverse("shift"))
    shift = page.context["shift"]
    assert (shift.opened, shift.unresolved, shift.restarts_succeeded, shift.savepoints_failed) == (1, 1, 1, 1)
    assert (shift.blind_s, [each.job for each in shift.jobs]) == (3600, ["flights"])
    shown = page.content.decode()
    for part in ("Last 12 h", "1 unresolved", "restart 1", "Full.", "the cluster did not answer"):
        assert part in shown


@pytest.mark.parametrize(("asked", "hours", "restarts"), [("8", 8, 0), ("24", 24, 1), ("7", 12, 1), ("x", 12, 1)])
def test_the_time_is_selected(viewer: Client, eventful: Any, asked: str, hours: int, restarts: int) -> None:
    page = viewer.get(reverse("shift"), {"hours": asked})
    assert page.context["hours"] == hours
    assert page.context["shift"].restarts_in_total == restarts


def test_the_live_part_has_no_heading(viewer: Client, eventful: Any) -> None:
    part = viewer.get(reverse("shift"), headers={"HX-Target": "shift-live", "HX-Request": "true"}).content.decode()
    assert "<h1>" not in part
    assert "flights" in part


def test_a_shift_without_events_explains_what_appears_here(viewer: Client) -> None:
    assert "A quiet shift" in viewer.get(reverse("shift")).content.decode()


def test_rows_out_of_reach_are_left_out(eventful: Any, now: datetime) -> None:
    user = User.objects.create_user("grace")
    Account.objects.create(user=user, granted_only=True)
    other = make.make_cluster(now, "other")
    Grant.objects.create(user=user, role="viewer", cluster=other, created_at=now, created_by="ada")
    client = Client()
    client.force_login(user)
    assert client.get(reverse("shift")).context["shift"].is_quiet


def test_the_summary_is_linked_from_incidents_and_found_by_the_search_box(viewer: Client) -> None:
    assert f'href="{reverse("shift")}"' in viewer.get(reverse("incidents")).content.decode()
    assert reverse("shift") in viewer.get(reverse("find"), {"q": "shift"}).content.decode()


CHANNEL = {"name": "lead", "to": "lead@example.org", "language": "en", "enabled": "on"}
FIELDS = {**CHANNEL, "group_wait_s": "10", "messages_per_10_min": "10"}


def test_a_channel_sends_the_summary_at_scheduled_times(operator: Client, now: datetime) -> None:
    times = {"summary_cron": "0  8,20 * * *", "summary_time_zone": "Asia/Shanghai", "summary_hours": "24"}
    assert operator.post(reverse("channel-add", args=["mail"]), FIELDS | times).status_code == 302
    channel = Channel.objects.get()
    found = (channel.summary_cron, channel.summary_time_zone, channel.summary_hours, channel.next_summary_at)
    assert found == ("0 8,20 * * *", "Asia/Shanghai", 24, None)
    assert write_due(now) == 0
    assert "next summary" in operator.get(reverse("channel", args=[channel.pk])).content.decode()
    operator.post(reverse("channel", args=[channel.pk]), FIELDS | times | {"summary_cron": "0 9 * * *"})
    channel.refresh_from_db()
    assert channel.next_summary_at is None


def test_a_channel_without_times_sends_none(operator: Client) -> None:
    assert operator.post(reverse("channel-add", args=["mail"]), FIELDS).status_code == 302
    channel = Channel.objects.get()
    assert (channel.summary_cron, channel.summary_time_zone, channel.summary_hours) == ("", "UTC", 12)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"summary_cron": "8"}, "summary_cron"),
        ({"summary_cron": "0 8 31 2 *"}, "summary_cron"),
        ({"summary_cron": "0 8 * * *", "summary_time_zone": "Mars"}, "summary_time_zone"),
        ({"summary_hours": "9"}, "summary_hours"),
    ],
)
def test_invalid_times_are_explained(operator: Client, values: dict[str, str], field: str) -> None:
    response = operator.post(reverse("channel-add", args=["mail"]), FIELDS | values)
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [field]


def test_a_paging_service_is_refused(operator: Client) -> None:
    values = {**FIELDS, "apprise_url": "pagerduty://routing-key@api-key", "summary_cron": "0 8 * * *"}
    response = operator.post(reverse("channel-add", args=["apprise"]), values)
    assert list(response.context["form"].errors) == ["summary_cron"]


def test_the_page_of_a_message_shows_the_summary(operator: Client, eventful: Any, now: datetime) -> None:
    channel = make.make_channel()
    Channel.objects.update(summary_cron="* * * * *", next_summary_at=now - timedelta(minutes=1))
    assert write_due(now) == 1
    delivery = channel.deliveries.get()
    page = operator.get(reverse("delivery", args=[delivery.pk])).content.decode()
    assert "[summary] Unresolved: " in page
    assert "flights" in page
    operator.cookies["django_language"] = "zh-hans"
    assert "【值班汇总】" in operator.get(reverse("deliveries")).content.decode()
