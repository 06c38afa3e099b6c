"""Paging services open an alert for each incident and close it with the incident's end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from apprise import Apprise
from apprise.plugins import opsgenie, pagerduty

from monitoring.models import Channel, ChannelKind
from monitoring.notify.apprise.paging import KEYS, one_by_one, pages
from monitoring.notify.apprise.transport import AppriseTransport
from monitoring.notify.message import Failed, Message, Sent
from tests.monitoring.notify.messages import AT, message

PAGERDUTY = "pagerduty://routing-key@api-key"
OPSGENIE = "opsgenie://0123456789abcdef"


@pytest.fixture
def send(httpserver, monkeypatch):
    monkeypatch.setitem(pagerduty.PAGERDUTY_API_LOOKUP, "us", httpserver.url_for("/v2/enqueue"))
    monkeypatch.setitem(opsgenie.OPSGENIE_API_LOOKUP, "us", httpserver.url_for("/v2/alerts"))

    def sent(url: str, text: Message):
        channel = Channel(name="p", kind=ChannelKind.APPRISE, secret=url, allow_private=True)
        return AppriseTransport().send(channel, text, AT)

    return sent


def asked(httpserver):
    return [json.loads(request.data) for request, _ in httpserver.log]


def test_pagerduty_gets_a_trigger_and_its_resolve_under_the_incidents_key(httpserver, send) -> None:
    httpserver.expect_request("/v2/enqueue", method="POST").respond_with_data("{}", 202)
    assert isinstance(send(PAGERDUTY, message(severity="critical")), Sent)
    assert isinstance(send(PAGERDUTY, message(event="repeat")), Sent)
    assert isinstance(send(PAGERDUTY, message(event="resolved", sentence="Another sentence.")), Sent)
    trigger, again, resolve = asked(httpserver)
    assert [each["event_action"] for each in (trigger, again, resolve)] == ["trigger", "trigger", "resolve"]
    assert {each["dedup_key"] for each in (trigger, again, resolve)} == {"waymark-incident-7"}
    assert trigger["payload"]["severity"] == "critical"
    assert "3 checkpoints failed." in trigger["payload"]["summary"]


def test_opsgenie_gets_an_alert_and_its_close_by_alias(httpserver, send) -> None:
    httpserver.expect_request("/v2/alerts", method="POST").respond_with_json({"requestId": "r"}, 202)
    close = "/v2/alerts/waymark-incident-7/close"
    httpserver.expect_request(close, query_string="identifierType=alias").respond_with_json({"requestId": "r"}, 202)
    assert isinstance(send(OPSGENIE, message()), Sent)
    assert isinstance(send(OPSGENIE, message(event="resolved")), Sent)
    (first, _), (second, _) = httpserver.log
    assert (json.loads(first.data)["alias"], second.path) == ("waymark-incident-7", close)


def test_incidents_of_one_message_are_separate_alerts(httpserver, send) -> None:
    httpserver.expect_request("/v2/enqueue").respond_with_data("{}", 202)
    first = message(event="resolved").lead
    both = Message("5" * 32, (first, replace(first, incident_id=8)), total=4, ended_unlisted=(9, 10))
    assert isinstance(send(PAGERDUTY, both), Sent)
    assert [each["dedup_key"] for each in asked(httpserver)] == [f"waymark-incident-{n}" for n in (7, 8, 9, 10)]
    assert {each["event_action"] for each in asked(httpserver)} == {"resolve"}
    assert len({request.headers["Idempotency-Key"] for request, _ in httpserver.log}) == 4


def test_a_refused_alert_fails_the_message_and_the_retry_sends_all(httpserver, send) -> None:
    both = Message("5" * 32, (message().lead, replace(message().lead, incident_id=8)), total=2)
    httpserver.expect_ordered_request("/v2/enqueue").respond_with_data("{}", 202)
    httpserver.expect_ordered_request("/v2/enqueue").respond_with_data("slow down", 429)
    answer = send(PAGERDUTY, both)
    assert isinstance(answer, Failed)
    assert not answer.permanent
    assert [each.key for each in one_by_one(both)] == [f"{'5' * 32}-7", f"{'5' * 32}-8"]


@pytest.mark.parametrize(
    ("scheme", "url"),
    [("pagerduty", f"{PAGERDUTY}?action=trigger"), ("pagerduty", f"{PAGERDUTY}?dedup=x"), ("slack", "slack://a")],
)
def test_a_configured_action_or_key_is_used(scheme: str, url: str) -> None:
    assert not pages(scheme, url)


@pytest.mark.parametrize(
    "url",
    [
        "ilert://0123456789abcdef0123",
        "incidentio://01HXYZ0123456789ABCDEFGHJK/token",
        "squadcast://0123456789abcdef0123456789abcdef01234567",
        "firehydrant://routing-key",
        "signl4://0123456789abcdef",
        "pagertree://int_0123456789abcd",
        "goalert://host/token",
        "victorops://routing-key@0123456789abcdef",
    ],
)
def test_the_other_services_use_the_configured_values(url: str) -> None:
    """Apprise must have both attributes, because setting an unknown one would have no effect."""
    service = Apprise.instantiate(url, suppress_exceptions=False)
    assert hasattr(service, KEYS[url.partition(":")[0]])
    assert "map" in service.template_args["action"]["values"]
