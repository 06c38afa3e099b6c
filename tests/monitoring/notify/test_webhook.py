import json
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from werkzeug import Response

from monitoring.diagnosis.signs.exceptions import ExceptionReason
from monitoring.models import Channel, ChannelKind
from monitoring.notify.message import BadChannel, Failed, Sent
from monitoring.notify.webhook.transport import WebhookTransport, payload, sign, verify
from monitoring.outbound_http import ANSWER_BYTES
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.notify import NotifyReason
from tests.monitoring.notify.messages import AT, message

MESSAGE = message()


@pytest.fixture
def send(httpserver):
    def post(path="/hook", secret=""):
        channel = Channel(
            name="w",
            kind=ChannelKind.WEBHOOK,
            settings={"url": httpserver.url_for(path)},
            secret=secret,
            allow_private=True,
        )
        return WebhookTransport().send(channel, MESSAGE, AT)

    return post


def test_the_body_is_signed_with_the_channels_secret(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("ok")
    assert send(secret="s3cret") == Sent("200 OK: ok")
    ((request, _),) = httpserver.log
    assert verify("s3cret", request.headers["X-Waymark-Signature"], request.data)
    assert not verify("s3cret", request.headers["X-Waymark-Signature"], request.data + b" ")
    assert not verify("other", request.headers["X-Waymark-Signature"], request.data)
    assert json.loads(request.data)["incident"] == {"id": 7, "url": "http://waymark.test/incidents/7/"}


def test_a_reason_is_sent_as_data_and_as_text():
    reason = AlertReason.RESOLVED(lasted=75, why="It completes.\nReally.")
    text = payload(message(sentence=reason))
    assert text["sentence"] == "Resolved after 1 min 15 s: It completes. Really."
    assert text["sentence_value"] == {"code": "alerts.resolved", "args": {"lasted": 75, "why": "It completes. Really."}}
    assert payload(MESSAGE)["sentence_value"] is None  # for an incident of an earlier version


def test_the_likely_cause_is_sent_as_data_and_as_text():
    cause = ExceptionReason.THROWN(what=ExceptionReason.PROGRAM_THREW(), text="KeyError:\n'x'")
    output = payload(message(cause=cause))
    assert output["likely_cause"] == "The program threw an exception: KeyError: 'x'."
    assert output["likely_cause_value"]["code"] == "diagnosis.thrown"
    assert output["likely_cause_value"]["args"]["text"] == "KeyError: 'x'"
    assert (payload(MESSAGE)["likely_cause"], payload(MESSAGE)["likely_cause_value"]) == ("", None)


def test_the_runbook_is_one_line():
    text = payload(message(runbook="https://wiki.example.org/a\nThen call ada."))
    assert text["runbook"] == text["incidents"][0]["runbook"] == "https://wiki.example.org/a Then call ada."
    assert payload(MESSAGE)["runbook"] == ""


def test_the_signature_is_of_the_timestamp_and_the_body():
    digest = "7321475872b03ff21bdc2dfd86ea2d99ec29c479fbe4a77aa6acf4509505493f"  # computed by `openssl dgst -hmac`
    assert sign("key", 1_800_000_000, b"{}") == f"t=1800000000,v1={digest}"


def test_without_a_secret_nothing_is_signed(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("ok")
    send()
    ((request, _),) = httpserver.log
    assert "X-Waymark-Signature" not in request.headers


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0), ("soon", None), ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0)],
)
def test_a_delivery_with_status_429_is_retried_after_the_delay_in_the_answer(httpserver, send, value, seconds):
    httpserver.expect_request("/hook").respond_with_data("slow down", 429, headers={"Retry-After": value})
    assert send() == Failed("429 TOO MANY REQUESTS: slow down", permanent=False, retry_after_s=seconds)


def test_a_redirect_is_not_followed(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("", 302, headers={"Location": httpserver.url_for("/other")})
    assert send().permanent
    assert [request.path for request, _ in httpserver.log] == ["/hook"]


def test_only_the_start_of_a_long_answer_is_read(httpserver, send):
    def endless():
        while True:
            yield b"x" * 1000

    httpserver.expect_request("/hook").respond_with_handler(lambda _request: Response(endless(), 200))
    assert send() == Sent(f"200 OK: {'x' * ANSWER_BYTES}")


@pytest.mark.parametrize("url", [None, "", "example.org", "file:///etc/passwd", "http://", 7, "http://[::1"])
def test_an_invalid_webhook_address_is_refused(url):
    with pytest.raises(BadChannel, match=r"^url is"):
        WebhookTransport().check(Channel(name="w", kind=ChannelKind.WEBHOOK, settings={"url": url}))


def test_the_documented_code_of_a_receiver_verifies_the_signature():
    text = (Path(settings.BASE_DIR) / "docs/alerts.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code
    documented: dict = {}
    exec(code[1], documented)
    is_from_waymark = documented["is_from_waymark"]
    header = sign("key", 1_800_000_000, b"{}")
    assert is_from_waymark("key", header, b"{}", 1_800_000_100)
    assert not is_from_waymark("key", header, b"{ }", 1_800_000_100)
    assert not is_from_waymark("other", header, b"{}", 1_800_000_100)
    assert not is_from_waymark("key", header, b"{}", 1_800_000_301)
    assert not is_from_waymark("key", "nonsense", b"{}", 1_800_000_100)


def test_many_incidents_are_a_list_with_the_gravest_at_the_top(httpserver, send):
    httpserver.expect_request("/hook").respond_with_data("ok")
    other = replace(MESSAGE.lead, job="orders", incident_id=8)
    channel = Channel(
        name="w", kind=ChannelKind.WEBHOOK, settings={"url": httpserver.url_for("/hook")}, allow_private=True
    )
    WebhookTransport().send(channel, replace(MESSAGE, items=(MESSAGE.lead, other), total=30), AT)
    text = json.loads(httpserver.log[0][0].data)
    assert (text["job"], text["count"], text["digest"]) == ("flights", 30, False)
    assert [each["job"] for each in text["incidents"]] == ["flights", "orders"]


def test_a_receiver_that_closes_before_it_answers_is_worth_a_retry():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_early():
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=close_early)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        channel = Channel(name="w", kind=ChannelKind.WEBHOOK, settings={"url": url}, allow_private=True)
        answer = WebhookTransport().send(channel, MESSAGE, AT)
        thread.join(10)
    assert isinstance(answer, Failed)
    assert not answer.permanent


def test_a_redirect_to_a_private_address_is_not_followed(httpserver, send):
    metadata = "http://169.254.169.254/latest/meta-data/"
    httpserver.expect_request("/hook").respond_with_data("", 307, headers={"Location": metadata})
    answer = send()
    assert answer.permanent
    assert answer.answer == NotifyReason.REDIRECTED(answer="307 TEMPORARY REDIRECT")
