"""Time ranges: a shared URL is the same range for every reader, and the tabs of a job keep the range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.templatetags.figures import clock
from monitoring.models import Account, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
TOKYO = ZoneInfo("Asia/Tokyo")


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now, age=timedelta(hours=5)), now, make.Shape(count=8))
    return job


@pytest.fixture
def in_tokyo(operator: Client, operator_user: User) -> Client:
    Account.objects.create(user=operator_user, time_zone="Asia/Tokyo")
    return operator


def opened(client: Client, name: str, job: Job, **query: str) -> Any:
    answer = client.get(reverse(name, args=[job.pk]), query)
    assert answer.status_code == 200
    return answer


@pytest.mark.parametrize("zone", [UTC, TOKYO, ZoneInfo("America/St_Johns")])
def test_range_with_an_offset_is_the_same_for_every_reader(
    viewer: Client, in_tokyo: Client, job: Job, now: datetime, zone: Any
) -> None:
    since, until = (now.astimezone(zone).replace(microsecond=0) - timedelta(hours=hours) for hours in (3, 2))
    texts = {"since": since.isoformat(), "until": until.isoformat()}
    for reader in (viewer, in_tokyo):
        span = opened(reader, "job-summary", job, **texts).context["window"].span
        assert (span.start, span.end) == (since, until)


def test_range_without_an_offset_is_in_the_zone_of_the_reader(in_tokyo: Client, job: Job, now: datetime) -> None:
    since, until = (now.astimezone(TOKYO).replace(microsecond=0) - timedelta(hours=hours) for hours in (3, 2))
    texts = {"since": since.replace(tzinfo=None).isoformat(), "until": until.replace(tzinfo=None).isoformat()}
    span = opened(in_tokyo, "job-summary", job, **texts).context["window"].span
    assert (span.start, span.end) == (since, until)


def test_fields_of_a_range_have_the_zone_of_the_reader(in_tokyo: Client, job: Job) -> None:
    page = opened(in_tokyo, "job-history", job, since="2026-11-21T10:00:00+00:00").content.decode()
    assert "From (UTC+9)" in page
    assert "To (UTC+9)" in page
    assert 'value="2026-11-21T19:00:00"' in page
    assert "From (UTC+9)" in opened(in_tokyo, "job", job).content.decode()
    assert "From (UTC+9)" in in_tokyo.get(reverse("maintenance")).content.decode()


@pytest.mark.parametrize("tab", ["overview", "summary"])
def test_tabs_keep_the_range(viewer: Client, job: Job, tab: str) -> None:
    name = "job" if tab == "overview" else "job-summary"
    page = opened(viewer, name, job, range="7d", run="1", kind="savepoint").content.decode()
    for linked in ("job", "job-summary"):
        assert f'<a href="{reverse(linked, args=[job.pk])}?range=7d&amp;run=1"' in page
    assert f'<a href="{reverse("job-history", args=[job.pk])}?run=1"' in page
    assert f'<a href="{reverse("job-exceptions", args=[job.pk])}"' in page


def test_dates_are_kept_between_history_and_charts(viewer: Client, job: Job) -> None:
    page = opened(viewer, "job-history", job, since="2026-11-21T10:00:00+08:00", status="FAILED").content.decode()
    kept = "?since=2026-11-21T10%3A00%3A00%2B08%3A00"
    assert f'<a href="{reverse("job", args=[job.pk])}{kept}"' in page
    assert f'<a href="{reverse("job-history", args=[job.pk])}{kept}"' in page


def test_links_do_not_carry_a_run_as_a_time_range(viewer: Client, job: Job) -> None:
    page = opened(viewer, "job-exceptions", job, run="1", since="2026-11-21T10:00:00Z").content.decode()
    assert f'<a href="{reverse("job", args=[job.pk])}"' in page


def test_tooltip_of_a_time_has_milliseconds() -> None:
    assert 'title="2026-11-21 04:51:41.802 UTC"' in clock(datetime(2026, 11, 21, 4, 51, 41, 802_999, UTC))
