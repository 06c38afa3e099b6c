"""Apprise with Waymark's guard of outbound requests: allowed services, requests, and results."""

from __future__ import annotations

import inspect
import json

import pytest
from apprise import Apprise
from apprise.manager_plugins import NotificationManager
from werkzeug import Response

from monitoring.models import Channel, ChannelKind
from monitoring.notify.apprise.services import SERVICES
from monitoring.notify.apprise.transport import AppriseTransport
from monitoring.notify.message import BadChannel, Failed, Sent
from monitoring.reasons.notify import NotifyReason
from tests.monitoring.notify.messages import AT, message

MESSAGE = message(severity="critical", sentence="3 checkpoints of flights failed.")


def channel(url: str, **fields) -> Channel:
    return Channel(name="a", kind=ChannelKind.APPRISE, secret=url, **{"allow_private": True, **fields})


@pytest.fixture
def send(httpserver):
    def sent(scheme="json", path="/hook", **fields):
        url = httpserver.url_for(path).replace("http://", f"{scheme}://")
        return AppriseTransport().send(channel(url, **fields), MESSAGE, AT)

    return sent


def test_json_gets_title_body_and_the_key(httpserver, send):
    httpserver.expect_request("/hook", method="POST").respond_with_data("taken")
    assert send() == Sent("200 OK: taken")
    ((request, _),) = httpserver.log
    text = json.loads(request.data)
    assert text["title"] == "[critical] 3 checkpoints of flights failed"
    assert MESSAGE.lead.incident_url in text["message"]
    assert request.headers["Idempotency-Key"] == MESSAGE.key
    assert request.headers["Host"] == f"{httpserver.host}:{httpserver.port}"


def test_xml_gets_it_too_in_the_channels_language(httpserver, send):
    httpserver.expect_request("/hook", method="POST").respond_with_data("ok")
    assert isinstance(send("xml", language="zh-hans"), Sent)
    ((request, _),) = httpserver.log
    assert "【严重】3 checkpoints of flights failed" in request.data.decode()


def test_a_redirect_is_not_followed(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("", 302, headers={"Location": httpserver.url_for("/other")})
    answer = send()
    assert isinstance(answer, Failed)
    assert answer.permanent
    assert answer.answer == NotifyReason.REDIRECTED(answer="302 FOUND")
    assert [request.path for request, _ in httpserver.log] == ["/hook"]


def test_the_retry_time_of_the_receiver_is_respected(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("slow down", 429, headers={"Retry-After": "120"})
    assert send() == Failed("429 TOO MANY REQUESTS: slow down", retry_after_s=120.0)


def test_only_the_start_of_an_endless_answer_is_read(httpserver, send):
    def endless():
        while True:
            yield b"x" * 1000

    httpserver.expect_request("/hook").respond_with_handler(lambda _request: Response(endless(), 200))
    assert isinstance(send(), Sent)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "syslog://",
        "dbus://",
        "mailto://user:pass@example.org",
        "rsyslog://10.0.0.1",
        "mqtt://broker.example.org/topic",
        "fcm://project@keyfile/",
        "file:///etc/passwd",
        "slack://",
        "json://example.org/?template=/etc/passwd",
        "json://example.org/?redirect=yes",
        "jsons://example.org/?verify=no",
    ],
)
def test_a_service_that_is_not_allowed_is_refused_with_the_allowed_ones(url):
    with pytest.raises(BadChannel, match=r"^apprise_url is") as raised:
        AppriseTransport().check(channel(url))
    assert "/etc/passwd" not in str(raised.value)


def test_a_refusal_does_not_repeat_the_secret():
    with pytest.raises(BadChannel) as raised:
        AppriseTransport().check(channel("slack://not-a-token-but-secret"))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("scheme", list(SERVICES))
def test_every_allowed_service_exists_and_uses_only_requests(scheme):
    plugin = NotificationManager()[scheme]
    source = inspect.getsource(inspect.getmodule(plugin))
    assert "requests" in source
    for word in ("smtplib", "subprocess", "import socket", "paho", "dbus.", "aiohttp", "websocket", "http.client"):
        assert word not in source


def test_outside_the_guard_requests_are_as_they_were(httpserver):
    """Other users of Apprise or requests in the same process are not affected."""
    httpserver.expect_request("/hook").respond_with_data("ok")
    assert Apprise.instantiate(httpserver.url_for("/hook").replace("http://", "json://")).notify(body="x")
