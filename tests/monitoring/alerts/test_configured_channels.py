"""Channels out of the environment."""

import pytest

from monitoring.alerts.notify.configured_channels import ensure_configured_channels
from monitoring.models import Channel

pytestmark = pytest.mark.django_db


def test_channels_are_made_once_and_follow_the_environment() -> None:
    ensure_configured_channels(["a@example.org"], "http://127.0.0.1:9/hook", "s")
    ensure_configured_channels(["b@example.org"], "", "")
    assert Channel.objects.get(name="Mail").settings == {"to": ["b@example.org"]}
    assert Channel.objects.get(name="Webhook").settings == {"url": "http://127.0.0.1:9/hook"}
    assert Channel.objects.count() == 2


def test_an_environment_that_names_nothing_makes_nothing() -> None:
    ensure_configured_channels([], "", "")
    assert not Channel.objects.exists()
