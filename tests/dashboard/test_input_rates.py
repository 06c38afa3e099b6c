"""A changed input rate of a job is found in the rows that its query reported, and noise is not."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.queries.changes import Changed, read_changes
from dashboard.queries.input_rates import LONGEST, MINUTE, find_change
from dashboard.queries.series import Span
from monitoring.engine.reported import storing
from monitoring.engine.reported.report import BatchReport, QueryReport, Report
from monitoring.models import Cluster, Discovery, Job, ReportedMinute, ReportedRun, WatchedQuery
from tests.dashboard import builders as make

QUERY, RUN = uuid.UUID(int=1).hex, uuid.UUID(int=2).hex
SECOND = timedelta(seconds=1)


def minutes(rows: Sequence[int], start: datetime, every: int = 1) -> list[tuple[datetime, int]]:
    return [(start + number * every * MINUTE, each) for number, each in enumerate(rows)]


def test_a_change_has_its_time_and_both_rates(now: datetime) -> None:
    found = find_change(minutes([6000] * 30 + [24_000] * 30, now))
    assert found is not None
    assert (found.at, found.before, found.after) == (now + 30 * MINUTE, 100, 400)


def test_the_end_of_the_input_is_a_change(now: datetime) -> None:
    found = find_change(minutes([6000] * 30 + [0] * 10, now))
    assert found is not None
    assert (found.at, found.before, found.after) == (now + 30 * MINUTE, 100, 0)


def test_rates_of_batches_that_are_rarer_than_minutes(now: datetime) -> None:
    found = find_change(minutes([6000] * 7 + [12_000] * 6, now, every=4))
    assert found is not None
    assert (found.before, found.after) == (25, 50)
    assert now + 24 * MINUTE < found.at <= now + 28 * MINUTE


def test_rows_that_were_read_after_a_standstill_are_no_change(now: datetime) -> None:
    late = minutes([6000] * 20, now)
    later = [(at + 20 * MINUTE, rows) for at, rows in minutes([6000 * 21] + [6000] * 19, now + 20 * MINUTE)]
    assert find_change(late + later) is None


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [6000],
        [6000] * 60,
        [0] * 60,
        [6000] * 30 + [8000] * 30,  # less than half as much again
        [30] * 30 + [60] * 30,  # less than a row per second
        [6000] * 58 + [24_000] * 2,  # too short
        [0, 0, 0, 24_000] * 15,  # bursts
    ],
    ids=str,
)
def test_noise_is_no_change(now: datetime, rows: list[int]) -> None:
    assert find_change(minutes(rows, now)) is None


@pytest.mark.parametrize("seed", range(20))
def test_random_rates_around_a_mean_are_no_change(now: datetime, seed: int) -> None:
    draw = random.Random(seed)
    assert find_change(minutes([draw.randrange(12_000) for _ in range(60)], now)) is None


@pytest.fixture
def job(db: None, now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now, age=timedelta(hours=3))
    WatchedQuery.objects.create(query_id=QUERY, job=job)
    return job


def lake(name: str = "lake") -> Cluster:
    return Cluster.objects.get_or_create(name=name, discovery=Discovery.AGENT)[0]


def report(
    cluster: Cluster,
    batches: Sequence[tuple[int, datetime, int | None]],
    now: datetime,
    idle_at: datetime | None = None,
) -> None:
    of = QueryReport(QUERY, RUN, "orders", idle_at=idle_at)
    made = (
        BatchReport(of, number, at, 300, None, {"numInputRows": rows, "sources": []}) for number, at, rows in batches
    )
    storing.store(cluster, Report("shop", "4.3.0", (of,), tuple(made)), now)


def every_ten_seconds(start: datetime, rates: Sequence[int]) -> list[tuple[int, datetime, int]]:
    """Return six batches for each minute, with these rows per second."""
    return [(number, start + number * 10 * SECOND, 10 * rates[number // 6]) for number in range(6 * len(rates))]


def changes(job: Job, span: Span) -> list[str]:
    return [change.sentence for change in read_changes(job, span) if change.kind is Changed.INPUT_RATE]


def test_the_change_in_reported_batches_is_listed_after_most_batches_are_forgotten(job: Job, now: datetime) -> None:
    start = (now - timedelta(hours=1)).replace(second=0, microsecond=0)
    batches = every_ten_seconds(start, [120] * 30 + [1480] * 29)
    for first in range(0, len(batches), 50):
        part = batches[first : first + 50]
        for _time in range(2):  # repeated reports count once
            report(lake(), part, part[-1][1])
    assert ReportedRun.objects.get().batches.count() == storing.BATCHES_KEPT
    (change,) = (each for each in read_changes(job, Span(start, now)) if each.kind is Changed.INPUT_RATE)
    assert (change.at, change.sentence) == (start + 30 * MINUTE, "120 → 1,480 rows/s")
    assert changes(job, Span(now - LONGEST - SECOND, now)) == []
    assert changes(make.make_job(job.cluster, "other"), Span(start, now)) == []


def test_the_page_of_an_incident_shows_the_change(viewer: Client, job: Job, now: datetime) -> None:
    start = (now - timedelta(hours=1)).replace(second=0, microsecond=0)
    report(lake(), every_ten_seconds(start, [5] * 30 + [1480] * 29), now)
    incident = make.make_incident(make.make_rule(job), now)
    page = viewer.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "Input rate" in page
    assert "5 → 1,480 rows/s" in page


def test_a_query_without_new_input_has_no_rows_to_read(job: Job, now: datetime) -> None:
    start = (now - timedelta(hours=1)).replace(second=0, microsecond=0)
    report(lake(), every_ten_seconds(start, [50] * 30), now)
    assert changes(job, Span(start, now)) == []  # nothing is known of the last half hour
    report(lake(), [], now, idle_at=now)
    assert changes(job, Span(start, now)) == ["50 → 0 rows/s"]
    report(lake(), [(999, now, 7)], now)
    assert changes(job, Span(start, now - MINUTE)) == []  # a batch may have run in this time


def test_a_run_that_two_clusters_report_counts_once(job: Job, now: datetime) -> None:
    start = (now - timedelta(hours=1)).replace(second=0, microsecond=0)
    report(lake(), every_ten_seconds(start, [50] * 59), now)
    report(lake("logs"), every_ten_seconds(start, [50] * 30), now)
    assert changes(job, Span(start, now)) == []


def test_minutes_with_unreported_batches_are_unknown(job: Job, now: datetime) -> None:
    start = (now - timedelta(hours=1)).replace(second=0, microsecond=0)
    batches = every_ten_seconds(start, [50] * 59)
    report(lake(), [each for each in batches if each[0] < 180 or each[0] % 6 == 0], now)
    assert set(ReportedMinute.objects.order_by("at").values_list("rows", flat=True)[31:]) == {None}
    assert changes(job, Span(start, now)) == []
    report(lake("logs"), batches, now)
    assert changes(job, Span(start, now)) == []


def test_minutes_are_kept_for_a_day(job: Job, now: datetime) -> None:
    report(lake(), [(0, now - timedelta(hours=25), 5), (1, now - timedelta(hours=23), 5), (2, now, None)], now)
    assert list(ReportedMinute.objects.order_by("at").values_list("rows", flat=True)) == [5, None]
    report(lake(), [(3, now + timedelta(hours=2), 5)], now + timedelta(hours=2))
    assert list(ReportedMinute.objects.order_by("at").values_list("rows", flat=True)) == [None, 5]
