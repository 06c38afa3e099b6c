"""Channels, messages and maintenance windows can be set up, and invalid input is explained."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_httpserver import HTTPServer

from monitoring.models import AuditEntry, Channel, ChannelKind, Delivery, DeliveryState, MaintenanceWindow
from monitoring.notify.channels import save_channel
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

MAIL = {
    "name": "on-call",
    "to": "ops@example.org, ada@example.org",
    "language": "en",
    "enabled": "on",
    "group_wait_s": "10",
    "messages_per_10_min": "10",
}
HOOK = {**MAIL, "url": "https://8.8.8.8/hook"}


@pytest.fixture
def administrator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="pw-ada-1"))
    return client


def add(client: Client, kind: str, values: dict[str, Any]) -> Any:
    return client.post(reverse("channel-add", args=[kind]), values)


def errors(response: Any) -> dict[str, str]:
    assert response.status_code == 422
    return {name: " ".join(found) for name, found in response.context["form"].errors.items()}


def test_a_mail_channel_is_added_and_audited_without_its_secret(operator: Client) -> None:
    response = add(operator, "mail", {**MAIL, "smtp": "smtp+tls://me:s3cret@8.8.8.8:587"})
    made = Channel.objects.get()
    assert response.headers["Location"] == reverse("channel", args=[made.pk])
    assert made.settings == {"to": ["ops@example.org", "ada@example.org"]}
    assert made.secret.reveal() == "smtp+tls://me:s3cret@8.8.8.8:587"
    entry = AuditEntry.objects.get(action="channel.add")
    assert entry.details["now"]["secret"] == "set"
    assert "s3cret" not in json.dumps(entry.details)


def test_a_change_is_audited_with_before_and_after_and_keeps_the_secret(operator: Client) -> None:
    made = Channel.objects.create(
        name="on-call", kind="mail", settings={"to": ["a@example.org"]}, secret="smtp://8.8.8.8"
    )
    operator.post(reverse("channel", args=[made.pk]), {**MAIL, "to": "b@example.org"})
    made.refresh_from_db()
    assert made.secret.reveal() == "smtp://8.8.8.8"
    entry = AuditEntry.objects.get(action="channel.change")
    assert entry.details["before"] == {"settings": {"to": ["a@example.org"]}}
    assert entry.details["now"] == {"settings": {"to": ["b@example.org"]}}


def test_a_secret_is_never_shown_again(operator: Client) -> None:
    made = Channel.objects.create(
        name="chat", kind="apprise", secret="slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/"
    )
    page = operator.get(reverse("channel", args=[made.pk])).content.decode()
    assert "TIiajkdnlazkcOXrIdevi7FQ" not in page
    assert "A URL is stored" in page


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "", "required"),
        ("to", "nobody", "nobody is not a mail address. Expected: name@example.org."),
        ("to", "", "at least one mail address"),
        ("smtp", "mail.example.org", "smtp+tls://user:password@mail.example.org:587"),
        ("smtp", "smtp://127.0.0.1:25", "this machine itself"),
        ("language", "tlh", "tlh"),
        ("group_wait_s", "soon", "whole seconds from 0 to 600"),
        ("messages_per_10_min", "0", "disable the channel"),
        ("repeat_every_s", "1 min", "from 5 min to 7 d"),
        ("escalate_after_s", "15 min", ""),
        ("subject_template", "{% include 'x' %}", "Allowed are"),
        ("body_template", "{{ password }}", "'password' is not a name that a message has"),
        ("body_template", "{{ settings.SECRET_KEY }}", "is not a name that a message has"),
        ("body_template", "{{ sentence|center:1000000000 }}", "Allowed are"),
        ("body_template", "{% if severity %}", "Unclosed tag"),
    ],
)
def test_channel_form_errors_appear_at_their_fields(operator: Client, field: str, value: str, expected: str) -> None:
    response = add(operator, "mail", {**MAIL, field: value})
    at = "escalate_to" if field == "escalate_after_s" else field
    assert expected in errors(response)[at]
    assert not Channel.objects.exists()
    typed = "" if field == "smtp" else value
    assert typed in response.content.decode().replace("&#x27;", "'")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/hook", "http://10.1.2.3/", "http://169.254.169.254/", "http://[::1]/"]
)
def test_a_private_address_is_refused(operator: Client, url: str) -> None:
    assert "unless an administrator allows it" in errors(add(operator, "webhook", {**HOOK, "url": url}))["url"]


def test_only_an_administrator_may_allow_a_private_address(operator: Client, administrator: Client) -> None:
    values = {**HOOK, "url": "http://10.1.2.3/hook", "allow_private": "on"}
    assert "url" in errors(add(operator, "webhook", values))
    add(administrator, "webhook", values)
    assert Channel.objects.get().allow_private


def test_an_operators_change_keeps_the_permission_for_private_addresses(operator: Client) -> None:
    made = Channel.objects.create(name="h", kind="webhook", settings={"url": "http://10.1.2.3/"}, allow_private=True)
    operator.post(reverse("channel", args=[made.pk]), {**HOOK, "url": "http://10.1.2.3/other"})
    made.refresh_from_db()
    assert (made.allow_private, made.settings["url"]) == (True, "http://10.1.2.3/other")


@pytest.mark.parametrize("url", ["", "syslog://", "mailto://u:p@example.org", "file:///etc/passwd", "nonsense"])
def test_a_forbidden_apprise_url_is_reported_at_its_field(operator: Client, url: str) -> None:
    assert errors(add(operator, "apprise", {**MAIL, "apprise_url": url}))["apprise_url"]


def test_an_apprise_channel_shows_only_its_service(operator: Client) -> None:
    add(operator, "apprise", {**MAIL, "apprise_url": "tgram://123456789:abcdefg_hijklmnop/12315544/"})
    page = operator.get(reverse("channels")).content.decode()
    assert "Telegram" in page
    assert "abcdefg" not in page


def test_the_test_button_shows_the_receivers_answer(operator: Client, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook").respond_with_data("no such hook", 404)
    settings = {"url": httpserver.url_for("/hook")}
    made = Channel.objects.create(name="h", kind="webhook", settings=settings, allow_private=True)
    page = operator.post(reverse("channel-test", args=[made.pk]), follow=True).content.decode()
    assert "The test message was not delivered. 404 NOT FOUND: no such hook" in page
    httpserver.clear()
    httpserver.expect_request("/hook").respond_with_data("thanks")
    page = operator.post(reverse("channel-test", args=[made.pk]), follow=True).content.decode()
    assert "200 OK: thanks" in page
    assert list(Delivery.objects.values_list("state", "is_test")) == [("sent", True), ("dead", True)]


def test_failed_message_is_retried_with_its_key(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    incident = make.make_incident(make.make_rule(job), now)
    message = make.make_delivery(incident, make.make_channel(), now, state=DeliveryState.DEAD, sent_at=None)
    key = message.key
    assert "Try again" in operator.get(reverse("delivery", args=[message.pk])).content.decode()
    operator.post(reverse("delivery-retry", args=[message.pk]))
    message.refresh_from_db()
    assert (message.state, message.attempts, message.key) == (DeliveryState.PENDING, 0, key)
    again = operator.post(reverse("delivery-retry", args=[message.pk]), follow=True).content.decode()
    assert "so there is nothing to retry" in again


def test_a_viewer_may_not_act(viewer: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    window = MaintenanceWindow.objects.create(cluster=cluster, starts_at=now, ends_at=now, created_by="o")
    incident = make.make_incident(make.make_rule(make.make_job(cluster)), now)
    message = make.make_delivery(incident, make.make_channel(), now, state=DeliveryState.DEAD, sent_at=None)
    for name, pk in (("channel-test", 1), ("delivery-retry", message.pk), ("maintenance-end", window.pk)):
        assert viewer.post(reverse(name, args=[pk])).status_code == 403
    assert viewer.post(reverse("maintenance"), {}).status_code == 403
    assert viewer.get(reverse("channel-add", args=["mail"])).status_code == 403


def test_the_path_of_a_webhook_is_for_operators_only(viewer: Client, operator: Client) -> None:
    settings = {"url": "https://hooks.example.org/services/t0ken"}
    page = reverse("channel", args=[Channel.objects.create(name="w", kind="webhook", settings=settings).pk])
    assert "t0ken" not in viewer.get(page).content.decode()
    assert "https://hooks.example.org/…" in viewer.get(page).content.decode()
    assert "t0ken" in operator.get(page).content.decode()
    operator.post(page, {**HOOK, "url": "https://8.8.8.8/another-t0ken"})
    logged = json.dumps(AuditEntry.objects.get(action="channel.change").details)
    assert "8.8.8.8" in logged
    assert "t0ken" not in logged


def test_a_viewer_sees_a_channel_and_cannot_change_it(viewer: Client) -> None:
    made = make.make_channel()
    assert viewer.get(reverse("channel", args=[made.pk])).status_code == 200
    assert viewer.post(reverse("channel", args=[made.pk]), MAIL).status_code == 403


@pytest.mark.parametrize("page", ["channels", "deliveries"])
def test_lists_need_as_many_queries_for_many_rows_as_for_few(
    viewer: Client, now: datetime, page: str, django_assert_num_queries: Any
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    job = make.make_job(make.make_cluster(now))
    incident = make.make_incident(make.make_rule(job), now)

    def queries_needed(count: int) -> int:
        for number in range(count):
            channel = make.make_channel(f"{count}-{number}", ChannelKind.WEBHOOK)
            make.make_delivery(incident, channel, now)
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(reverse(page)).status_code == 200
        return len(queries)

    queries_needed(1)  # the first request has additional queries for the session
    assert queries_needed(2) == queries_needed(20)


PLAN = {"scope": "job", "job": "flights", "lasts": "2 h", "reason": "the disk is replaced"}


def test_a_window_is_planned_for_a_job_and_ended_before_its_time(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now), "flights")
    operator.post(reverse("maintenance"), PLAN)
    window = MaintenanceWindow.objects.get()
    assert (window.job, window.ends_at - window.starts_at) == (job, timedelta(hours=2))
    assert "Running" in operator.get(reverse("maintenance")).content.decode()
    operator.post(reverse("maintenance-end", args=[window.pk]))
    page = operator.get(reverse("maintenance-window", args=[window.pk])).content.decode()
    assert "ended by olga" in page
    actions = list(AuditEntry.objects.values_list("action", flat=True))
    assert actions == ["maintenance.end", "maintenance.plan"]


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"job": "nobody"}, "job", "There is no job named 'nobody'."),
        ({"job": ""}, "job", "Enter a job."),
        ({"job": "twice"}, "job", "Enter a/twice"),
        ({"scope": "cluster"}, "cluster", "Select a cluster"),
        ({"scope": "selector", "selector": "team="}, "selector", "“team=” is not a term: write terms like"),
        ({"scope": "selector", "selector": ""}, "selector", "Enter at least one label"),
        ({"lasts": "2 years"}, "lasts", "from 1 min to 30 d"),
        ({"lasts": ""}, "lasts", "Enter a duration"),
        ({"starts_at": "2020-01-01T10:00"}, "starts_at", "This time is in the past"),
        ({"starts_at": "tomorrow"}, "starts_at", "Enter a date and time"),
        ({"reason": ""}, "reason", "Enter a reason"),
    ],
)
def test_invalid_window_is_reported_at_its_field(
    operator: Client, now: datetime, changes: dict[str, str], field: str, expected: str
) -> None:
    for name in ("b", "a"):
        make.make_job(make.make_cluster(now, name), "twice")
    make.make_job(make.make_cluster(now, "c"), "flights")
    response = operator.post(reverse("maintenance"), {**PLAN, **changes})
    assert expected in errors(response)[field]
    assert not MaintenanceWindow.objects.exists()


def test_a_job_of_several_clusters_is_named_with_its_cluster(operator: Client, now: datetime) -> None:
    jobs = [make.make_job(make.make_cluster(now, name), "twice") for name in ("a", "b")]
    operator.post(reverse("maintenance"), {**PLAN, "job": "b/twice"})
    assert MaintenanceWindow.objects.get().job == jobs[1]


def test_saving_a_channel_writes_no_secret_anywhere_readable(db: None) -> None:
    channel = Channel(name="w", kind="webhook", settings={"url": "https://example.org/"}, secret="t0p")
    save_channel(channel, {}, True, "olga")
    assert "t0p" not in json.dumps(AuditEntry.objects.get().details)
    assert Channel.objects.extra(where=["secret LIKE %s"], params=["%t0p%"]).count() == 0
