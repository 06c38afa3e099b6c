"""The conformance test of channels: what every kind must do for each behavior of its receiver."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
import pytest
from werkzeug import Request, Response

from monitoring import outbound_http
from monitoring.models import Channel, ChannelKind
from monitoring.notify.apprise import guard
from monitoring.notify.mail import transport as mail_transport
from monitoring.notify.message import BadChannel, Failed, Sent
from monitoring.notify.transports import TRANSPORTS, transport_of
from monitoring.secret import Secret, seal
from tests.monitoring.notify.messages import AT, message

MESSAGE = message(job='flights "<by>" & route', sentence="3 checkpoints failed.\nReally.")


@dataclass
class MailReceiver:
    sink: object
    settings_of_site: object

    def channel(self) -> Channel:
        return Channel(name="m", kind=ChannelKind.MAIL, settings={"to": ["ops@example.org"]})

    def works(self) -> None: ...

    def is_broken_for_now(self) -> None:
        self.sink.answer = "451 Try again later"

    def refuses_permanently(self) -> None:
        self.sink.answer = "554 No such service here"

    def is_at(self, port: int) -> None:
        self.settings_of_site.EMAIL_PORT = port

    def keys(self) -> list[str]:
        return [mail["Message-ID"].strip("<>").partition("@")[0] for mail in self.sink.mails]


class WebhookReceiver:
    def __init__(self, server) -> None:
        self.server = server
        self.url = server.url_for("/hook")
        self.taken: list[str] = []

    def channel(self) -> Channel:
        return Channel(
            name="w", kind=ChannelKind.WEBHOOK, settings={"url": self.url}, secret="s3cret", allow_private=True
        )

    def works(self) -> None:
        def take(request: Request) -> Response:
            self.taken.append(request.headers["Idempotency-Key"])
            return Response("thanks", 200)

        self.server.expect_request("/hook", method="POST").respond_with_handler(take)

    def is_broken_for_now(self) -> None:
        self.server.expect_request("/hook").respond_with_data("oh no", 500)

    def refuses_permanently(self) -> None:
        self.server.expect_request("/hook").respond_with_data("gone", 410)

    def is_at(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook"

    def keys(self) -> list[str]:
        return self.taken


class AppriseReceiver(WebhookReceiver):
    """A receiver for Apprise's JSON service, on the same server."""

    def channel(self) -> Channel:
        url = self.url.replace("http://", "json://")
        return Channel(name="a", kind=ChannelKind.APPRISE, secret=url, allow_private=True)


RECEIVERS = {
    ChannelKind.APPRISE: lambda request: AppriseReceiver(request.getfixturevalue("httpserver")),
    ChannelKind.MAIL: lambda request: MailReceiver(
        request.getfixturevalue("mail_sink"), request.getfixturevalue("settings")
    ),
    ChannelKind.WEBHOOK: lambda request: WebhookReceiver(request.getfixturevalue("httpserver")),
}


@pytest.fixture(params=list(ChannelKind), ids=lambda kind: kind.value)
def receiver(request):
    return RECEIVERS[request.param](request)


@pytest.fixture
def short_time_outs(monkeypatch):
    monkeypatch.setattr(mail_transport, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(outbound_http, "TIMEOUT", aiohttp.ClientTimeout(total=0.3))
    monkeypatch.setattr(guard, "TIME_OUT_S", (0.3, 0.3))


def send(receiver):
    channel = receiver.channel()
    return transport_of(channel.kind).send(channel, MESSAGE, AT)


def test_every_kind_of_channel_has_a_transport():
    assert set(TRANSPORTS) == set(ChannelKind)


def test_the_message_arrives_under_its_key(receiver):
    receiver.works()
    assert isinstance(send(receiver), Sent)
    assert receiver.keys() == [MESSAGE.key]


def test_a_retry_has_the_same_key(receiver):
    receiver.works()
    send(receiver)
    send(receiver)
    assert receiver.keys() == [MESSAGE.key] * 2


def test_a_receiver_broken_for_now_is_worth_a_retry(receiver):
    receiver.is_broken_for_now()
    match send(receiver):
        case Failed(answer, permanent=False):
            assert "451" in str(answer) or "500" in str(answer)
        case other:
            pytest.fail(str(other))


def test_a_secret_that_no_key_opens_now_is_worth_a_retry(receiver):
    """The key may be missing in this worker only, so the message waits for it."""
    receiver.works()
    channel = receiver.channel()
    channel.secret = Secret.from_stored(seal("x")[:-6] + "AAAAA=")
    match transport_of(channel.kind).send(channel, MESSAGE, AT):
        case Failed(answer, permanent=False):
            assert answer == channel.secret.problem()
        case other:
            pytest.fail(str(other))
    assert receiver.keys() == []


def test_a_permanent_refusal_is_not_retried(receiver):
    receiver.refuses_permanently()
    assert send(receiver).permanent


def test_a_receiver_that_is_down_is_worth_a_retry(receiver, closed_port):
    receiver.is_at(closed_port)
    match send(receiver):
        case Failed(_, permanent=False):
            pass
        case other:
            pytest.fail(str(other))


def test_a_receiver_that_never_answers_is_left_in_time(receiver, silent_port, short_time_outs):
    receiver.is_at(silent_port)
    match send(receiver):
        case Failed(_, permanent=False):
            pass
        case other:
            pytest.fail(str(other))


@pytest.mark.parametrize("kind", list(ChannelKind))
def test_invalid_settings_name_their_field(kind):
    with pytest.raises(BadChannel) as raised:
        transport_of(kind).check(Channel(name="x", kind=kind))
    assert str(raised.value).startswith(raised.value.field)


@pytest.mark.parametrize("kind", list(ChannelKind))
def test_a_channel_that_became_invalid_fails_permanently(kind):
    channel = Channel(name="x", kind=kind, settings={"to": ["no address"], "url": "ftp://x"}, secret="ftp://x")
    assert transport_of(kind).send(channel, MESSAGE, AT).permanent


def test_a_receiver_on_this_machine_is_refused_unless_an_administrator_allowed_it(receiver):
    channel = receiver.channel()
    channel.allow_private = False
    if channel.kind == ChannelKind.MAIL:
        channel.secret = f"smtp://127.0.0.1:{receiver.sink.port}"
    receiver.works()
    for refused in (lambda: transport_of(channel.kind).check(channel), lambda: _raise(channel)):
        with pytest.raises(BadChannel, match=r"this machine itself"):
            refused()
    assert receiver.keys() == []


def _raise(channel):
    """Send a message, and raise a permanent failure as the channel's check does."""
    match transport_of(channel.kind).send(channel, MESSAGE, AT):
        case Failed(answer, permanent=True):
            raise BadChannel("send", None, answer)
        case other:
            pytest.fail(str(other))
