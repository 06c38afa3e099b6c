"""The Logs tab in all sizes and themes with no, little and much content, and its live tail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from playwright.sync_api import expect
from pytest_httpserver import HTTPServer

from monitoring.models import Run
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.log_server import LogServer

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]

_SECONDS = "2026-11-25 10:{:02}:{:02},120 INFO checkpointing.spark.driver: attempt 3 of job flights, batch {} ended\n"
MUCH = "".join(_SECONDS.format(number // 60 % 60, number % 60, number) for number in range(3000)) + (
    "2026-11-25T10:50:00.311 ERROR TaskSetManager: Task 0 in stage 9.0 failed 1 times; aborting job\n"
    "Traceback (most recent call last):\n"
    '  File "/work/flights.py", line 41, in by_route\n'
    f"    raise ValueError({'very long ' * 40!r})\n"
    "ValueError: a row without a route, at the moment\n"
)


@pytest.fixture
def run(now: datetime, httpserver: HTTPServer) -> Run:
    job = sample_fleet.make_troubled_fleet(now)[0]
    job.cluster.rest_url = httpserver.url_for("").rstrip("/")
    job.cluster.save()
    assert job.current_run is not None
    return job.current_run


def test_the_logs_of_a_job(read_as: Callable[..., Reader], run: Run, httpserver: HTTPServer, now: datetime) -> None:
    server, reader, address = LogServer(httpserver, run, now), read_as(), reverse("job-logs", args=[run.job_id])
    check_pages(reader, {"logs-none": address})
    server.logs = {"driver-1.log": b"2026-11-25 10:00:00,000 INFO checkpointing.spark.driver: attempt 1 starts\n"}
    check_pages(reader, {"logs-little": address})
    server.logs = {f"driver-{attempt}.log": MUCH.encode() for attempt in range(1, 10)}
    at = server.started(9) + timedelta(seconds=5)
    pages = {
        "logs-much": address,
        "logs-search": f"{address}?text=aborting",
        "logs-moment": f"{address}?at={at:%Y-%m-%dT%H:%M:%S}Z",
    }
    check_pages(reader, pages)


def test_the_tail_follows_until_it_is_paused(
    read_as: Callable[..., Reader], run: Run, httpserver: HTTPServer, now: datetime
) -> None:
    server, reader = LogServer(httpserver, run, now), read_as()
    server.logs = {"driver-1.log": MUCH.encode()}
    page = reader.open(reverse("job-logs", args=[run.job_id]))
    log = page.locator("#log")
    server.logs["driver-1.log"] += b"a new line\n"
    expect(log).to_contain_text("a new line")
    page.get_by_label("Follow").uncheck()
    server.logs["driver-1.log"] += b"while paused\n"
    with page.expect_response(lambda answer: "/header/" in answer.url):  # wait for one refresh
        pass
    expect(log).not_to_contain_text("while paused")
    page.get_by_label("Follow").check()
    expect(log).to_contain_text("while paused")
    log.evaluate("log => { log.scrollTop = 0; }")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    assert reader.complaints == []
