"""The pages about alerts in all sizes and themes, with much, little and no content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from monitoring.models import ConfigurationChange, Incident, IncidentState, Objective, Runbook
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.sample_alerts import make_alerts

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LISTS = ("incidents", "shift", "objectives", "channels", "deliveries", "maintenance", "runbooks")


def test_pages_with_many_alerts(read_as: Callable[..., Reader], now: datetime) -> None:
    night = make_alerts(now)
    together = make.make_cluster(now, "us-prod")
    for name in ("prices", "orders", "clicks"):
        rule = make.make_rule(make.make_job(together, name))
        make.make_incident(rule, now - timedelta(minutes=3), assigned_to="olga" if name == "prices" else "")
    text = "https://wiki.example.org/runbooks/eu-prod\nCall ada."
    runbook = Runbook.objects.create(selector="cluster=eu-prod", text=text)
    jobs = night.cluster_incident.cluster.jobs.order_by("name")
    own = [make.make_objective(job, now, missed=missed) for job, missed in zip(jobs, (0, 90, 140), strict=False)]
    Objective.objects.create(selector="team=payments,env!=dev", percent=99.9, limit_ms=500, days=7)
    pages = {
        **{name: reverse(name) for name in LISTS},
        "incident-cluster": reverse("incident", args=[night.cluster_incident.pk]),
        "incident-long": reverse("incident", args=[night.long_incident.pk]),
        "channel": reverse("channel", args=[night.channel.pk]),
        "channel-add": reverse("channel-add", args=["apprise"]),
        "channel-remove": reverse("channel-remove", args=[night.channel.pk]),
        "message-dead": reverse("delivery", args=[night.dead_message.pk]),
        "message-digest": reverse("delivery", args=[night.digest.pk]),
        "fleet-objectives": reverse("fleet"),
        "job-objective": reverse("job-alerts", args=[own[1].job_id]),
        "objective": reverse("objective", args=[own[1].pk]),
        "objective-new": reverse("objective-new"),
        "window": reverse("maintenance-window", args=[night.window.pk]),
        "runbook": reverse("runbook", args=[runbook.pk]),
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


def test_an_incident_is_one_screen_on_a_phone(read_as: Callable[..., Reader], now: datetime) -> None:
    job = make.make_job(make.make_cluster(now, "eu-prod"), "orders-enrich")
    shape = make.Shape(count=90, every=timedelta(seconds=20), failed=frozenset(range(3, 9)))
    made = make.make_checkpoints(make.make_run(job, now, age=timedelta(hours=2)), now, shape)
    made[-4].alignment_max = 8_000  # of 10,000 ms: the likely cause
    made[-4].save()
    make.make_operators(made[-12:])
    rule = make.make_rule(job, runbook="https://wiki.example.org/runbooks/failed-checkpoints")
    incident = make.make_incident(rule, now - timedelta(minutes=2), assigned_to="olga")
    incident.events.update(evidence={"last_row": made[-4].pk, "count": 6})
    for key, back in (("execution.checkpointing.interval", 30), ("mode", 20), ("timeout", 10)):
        values = {"part": "checkpointing", "kind": "changed", "before": 10_000, "after": 20_000}
        ConfigurationChange.objects.create(job=job, at=now - timedelta(minutes=back), key=key, **values)
    for theme in ("light", "dark"):
        reader = read_as("narrow", theme)
        page = reader.open(reverse("incident", args=[incident.pk]))
        for term in ("Likely cause", "Last good checkpoint", "Runbook", "Assigned to", "What changed in the hour"):
            expect(page.locator("dt", has_text=term)).to_be_in_viewport()
        expect(page.locator("#incident-chart .plot-container")).to_be_in_viewport()
        expect(page.locator(".job-changes a.breaks").last).to_be_in_viewport(ratio=1)
        for name in ("Acknowledge", "Assign", "Resolve", "Add note"):
            expect(page.locator(".acts").get_by_text(name, exact=True).first).to_be_in_viewport()
        reader.picture(f"incident-phone-{theme}", whole=False)
        assert reader.overflow() <= 0
        assert reader.barriers() == []
        assert reader.complaints == []


def test_an_incident_is_assigned_by_click(read_as: Callable[..., Reader], now: datetime) -> None:
    night = make_alerts(now, jobs=3)
    page = read_as("wide", "light").open(reverse("incident", args=[night.long_incident.pk]))
    page.locator("#assign-menu > summary").click()
    page.get_by_role("button", name="Assign to me").click()
    expect(page.get_by_role("status").filter(has_text="Incident assigned to olga.")).to_be_visible()
    page = read_as("wide", "dark").open(reverse("incidents"))
    page.get_by_role("link", name="Me", exact=True).click()
    expect(page.get_by_text("orders-enrich")).to_be_visible()


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
