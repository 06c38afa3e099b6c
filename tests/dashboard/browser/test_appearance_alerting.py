"""The pages about alerts in all sizes and themes, with much, little and no content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from monitoring.models import Incident, IncidentState
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.sample_alerts import make_alerts

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LISTS = ("incidents", "channels", "deliveries", "maintenance")


def test_a_night_of_alerts(read_as: Callable[..., Reader], now: datetime) -> None:
    night = make_alerts(now)
    pages = {
        **{name: reverse(name) for name in LISTS},
        "incident-cluster": reverse("incident", args=[night.cluster_incident.pk]),
        "incident-long": reverse("incident", args=[night.long_incident.pk]),
        "channel": reverse("channel", args=[night.channel.pk]),
        "channel-add": reverse("channel-add", args=["apprise"]),
        "channel-remove": reverse("channel-remove", args=[night.channel.pk]),
        "message-dead": reverse("delivery", args=[night.dead_message.pk]),
        "message-digest": reverse("delivery", args=[night.digest.pk]),
        "window": reverse("maintenance-window", args=[night.window.pk]),
    }
    check_pages(read_as(), pages, "alerting-")


def test_alert_pages_without_data(read_as: Callable[..., Reader], db: None) -> None:
    check_pages(read_as(), {name: reverse(name) for name in LISTS}, "alerting-nothing-")


def test_selection_survives_a_refresh_and_is_acknowledged(
    read_as: Callable[..., Reader], now: datetime, operator_user: User
) -> None:
    night = make_alerts(now, jobs=3)
    reader = read_as("wide", "light")
    page = reader.open(reverse("incidents"))
    box = page.get_by_label(f"Select incident {night.cluster_incident.pk}")
    box.check()
    page.get_by_label("Note for selected").fill("on it")
    with page.expect_response(
        lambda answer: "/incidents/" in answer.url and answer.request.headers.get("hx-request") == "true"
    ):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    expect(box).to_be_checked()
    expect(page.get_by_label("Note for selected")).to_have_value("on it")
    page.get_by_role("button", name="Acknowledge selected").click()
    expect(page.get_by_role("status").filter(has_text="1 incident acknowledged")).to_be_visible()
    acknowledged = Incident.objects.get(pk=night.cluster_incident.pk)
    assert (acknowledged.state, acknowledged.acknowledged_by) == (IncidentState.ACKNOWLEDGED, operator_user.username)
    assert reader.complaints == []


def test_actions_of_an_incident_stay_in_view(read_as: Callable[..., Reader], now: datetime) -> None:
    night = make_alerts(now, jobs=3)
    for size in ("wide", "narrow"):
        reader = read_as(size, "light")
        page = reader.open(reverse("incident", args=[night.long_incident.pk]))
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        for name in ("Resolve", "Add note"):
            expect(page.get_by_role("button", name=name, exact=True)).to_be_in_viewport()
        expect(page.get_by_role("link", name="Restart from…")).to_be_in_viewport()
        page.locator("#snooze-menu > summary").click()
        expect(page.get_by_role("button", name="Until tomorrow, 09:00")).to_be_in_viewport()
        reader.picture(f"incident-actions-{size}")
        assert reader.overflow() <= 0
        assert reader.complaints == []


def test_all_incidents_shown_are_snoozed_together(read_as: Callable[..., Reader], now: datetime) -> None:
    make_alerts(now, jobs=3)
    page = read_as("wide", "light").open(reverse("incidents"))
    page.get_by_label("Select all incidents shown").check()
    page.locator("#bulk summary").click()
    page.get_by_role("button", name="30 min", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="snoozed")).to_be_visible()
    left = Incident.objects.exclude(state__in=(IncidentState.RESOLVED, IncidentState.SNOOZED))
    assert not left.filter(inhibited_by=None).exists()


def test_invalid_form_keeps_its_input(read_as: Callable[..., Reader], db: None) -> None:
    reader = read_as("narrow", "dark")
    page = reader.open(reverse("channel-add", args=["webhook"]))
    page.get_by_label("Name").fill("on-call")
    page.get_by_label("Address", exact=True).fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Save channel").click()
    expect(page.get_by_role("alert")).to_contain_text("this machine itself")
    expect(page.get_by_label("Address", exact=True)).to_have_value("http://127.0.0.1:9/hook")
    reader.picture("channel-refused-alerting")
    assert reader.overflow() <= 0
