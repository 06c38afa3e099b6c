"""Receivers with a certificate of a private authority get notifications once WAYMARK_CA_BUNDLE has this authority."""

from __future__ import annotations

import pytest
from aiosmtpd.controller import Controller
from pytest_httpserver import HTTPServer

from monitoring.models import Channel, ChannelKind
from monitoring.notify.message import Failed, Sent
from monitoring.notify.transports import transport_of
from tests.certificates import Authority
from tests.monitoring.notify.conftest import MailSink
from tests.monitoring.notify.messages import AT, message


@pytest.fixture(scope="module")
def authority():
    return Authority("A company's own")


@pytest.fixture
def https(authority, tmp_path):
    with HTTPServer(host="127.0.0.1", ssl_context=authority.sign().server_context(tmp_path)) as server:
        server.expect_request("/hook").respond_with_data("thanks")
        yield server


@pytest.fixture
def smtps(authority, tmp_path, closed_port):
    sink = MailSink(port=closed_port)
    context = authority.sign(("127.0.0.1",)).server_context(tmp_path)
    controller = Controller(sink, hostname="127.0.0.1", port=sink.port, ssl_context=context, ready_timeout=60)
    controller.start()
    yield sink
    controller.stop()


def webhook(request) -> Channel:
    url = request.getfixturevalue("https").url_for("/hook")
    return Channel(name="w", kind=ChannelKind.WEBHOOK, settings={"url": url}, allow_private=True)


def apprise(request) -> Channel:
    url = request.getfixturevalue("https").url_for("/hook").replace("https://", "jsons://")
    return Channel(name="a", kind=ChannelKind.APPRISE, secret=url, allow_private=True)


def mail(request) -> Channel:
    url = f"smtps://127.0.0.1:{request.getfixturevalue('smtps').port}"
    settings = {"to": ["ops@example.org"]}
    return Channel(name="m", kind=ChannelKind.MAIL, settings=settings, secret=url, allow_private=True)


@pytest.fixture(params=[webhook, apprise, mail], ids=lambda make: make.__name__)
def channel(request) -> Channel:
    return request.param(request)


def send(channel: Channel):
    return transport_of(channel.kind).send(channel, message(), AT)


def test_a_webhook_is_sent_if_its_authority_is_configured(channel, authority, settings):
    settings.CA_BUNDLE = authority.pem
    assert isinstance(send(channel), Sent)


def test_without_its_authority_nothing_is_sent_and_the_certificate_is_named(channel, settings):
    settings.CA_BUNDLE = Authority("Somebody else").pem
    answer = send(channel)
    assert isinstance(answer, Failed)
    assert not answer.permanent
    assert "certificate" in str(answer.answer).lower()
