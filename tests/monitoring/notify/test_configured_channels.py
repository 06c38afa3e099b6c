"""Channels that are configured by environment variables."""

from datetime import timedelta

import pytest
from django.db import transaction

from monitoring.alerts.incidents import Opening, open_incidents
from monitoring.models import Channel, Severity
from monitoring.notify.channels import ensure_configured_channels
from monitoring.notify.delivery import deliver_due
from monitoring.notify.webhook.transport import verify
from tests.monitoring.reported import notifications

pytestmark = pytest.mark.django_db


def test_channels_are_created_once_and_follow_the_environment() -> None:
    ensure_configured_channels(["a@example.org"], "http://127.0.0.1:9/hook", "s")
    ensure_configured_channels(["b@example.org"], "", "")
    assert Channel.objects.get(name="Mail").settings == {"to": ["b@example.org"]}
    assert Channel.objects.get(name="Webhook").settings == {"url": "http://127.0.0.1:9/hook"}
    assert Channel.objects.count() == 2


def test_an_environment_without_channels_creates_none() -> None:
    ensure_configured_channels([], "", "")
    assert not Channel.objects.exists()


def test_a_configured_local_channel_gets_an_incident(rows, mail_sink, httpserver, now) -> None:
    httpserver.expect_request("/hook").respond_with_data("ok")
    ensure_configured_channels(["admin@localhost"], httpserver.url_for("/hook"), "s3cret")
    with transaction.atomic():
        open_incidents([Opening("job_failed", Severity.CRITICAL, "flights failed.", job=rows.job(name="flights"))], now)
    assert deliver_due(now + timedelta(seconds=10)) == notifications(sent=2)
    assert mail_sink.mails[0]["To"] == "admin@localhost"
    ((request, _),) = httpserver.log
    assert verify("s3cret", request.headers["X-Waymark-Signature"], request.data)
