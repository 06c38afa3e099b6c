"""Waymark pings an external monitor while its own checks succeed, and only then."""

from __future__ import annotations

import pytest
from django.utils import timezone
from pytest_httpserver import HTTPServer

from monitoring import broker
from monitoring.models import Tick
from monitoring.selfwatch.dead_man import NotPinged, ping
from monitoring.selfwatch.own_facts import periods


@pytest.fixture
def seeing(db, redis) -> None:
    now = timezone.now()
    for task in periods():
        Tick.objects.create(task=task, ended_at=now)
    broker.write_heartbeat(redis, "beat", leads=True)
    broker.write_heartbeat(redis, "worker")


@pytest.fixture
def outside(httpserver: HTTPServer, settings) -> HTTPServer:
    settings.DEAD_MAN_URL = httpserver.url_for("/ping/1234")
    httpserver.expect_request("/ping/1234").respond_with_data("OK")
    return httpserver


def test_the_outside_is_pinged_while_clusters_are_polled(seeing, outside):
    assert ping(timezone.now()) is None
    assert len(outside.log) == 1


def test_no_ping_is_sent_while_clusters_are_not_polled(seeing, redis, outside):
    redis.flushall()
    assert "No scheduler (beat) is running" in str(ping(timezone.now()))
    assert outside.log == []


def test_no_ping_is_sent_without_an_address(db, settings, django_assert_num_queries):
    settings.DEAD_MAN_URL = ""
    with django_assert_num_queries(0):
        assert ping(timezone.now()) is None


def test_a_failed_ping_is_reported_without_the_address(seeing, httpserver, settings):
    settings.DEAD_MAN_URL = httpserver.url_for("/ping/secret-word")
    httpserver.expect_request("/ping/secret-word").respond_with_data("no", status=404)
    with pytest.raises(NotPinged, match="answered HTTP 404") as refused:
        ping(timezone.now())
    assert "secret-word" not in str(refused.value)


def test_an_address_that_is_not_allowed_is_refused(seeing, settings):
    settings.DEAD_MAN_URL = "http://169.254.169.254/latest/secret-word"
    with pytest.raises(NotPinged, match="the address at which clouds issue credentials") as refused:
        ping(timezone.now())
    assert "secret-word" not in str(refused.value)


def test_a_ping_that_fails_for_long_does_not_keep_itself_from_pinging(seeing, outside):
    Tick.objects.filter(task="ping_dead_man").update(ended_at=None, failed_at=timezone.now(), failure="NotPinged")
    assert ping(timezone.now()) is None
    assert len(outside.log) == 1
