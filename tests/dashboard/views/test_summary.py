from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.percentiles import FRACTIONS
from dashboard.queries import summary
from dashboard.queries.series import Span
from dashboard.queries.summary import read_by_run, read_summary
from monitoring.models import Checkpoint, Job, Run
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"
FIGURES = ("end_to_end_duration", "checkpointed_size", "state_size", "processed_data", "persisted_data")
# The six completed checkpoints that Flink 2.3.0 summarized in checkpoints.json.
RECORDED = [
    (563, 5770, 5770, 21, 0),
    (59, 8932, 8932, 168, 0),
    (98, 12349, 12349, 147, 0),
    (78, 15749, 15749, 126, 0),
    (76, 19149, 19149, 105, 0),
    (84, 19540, 19540, 42, 0),
]


@pytest.fixture
def run(now: datetime) -> Run:
    return make.make_run(make.make_job(make.make_cluster(now)), now, age=timedelta(days=90))


def store(run: Run, now: datetime, durations: list[int]) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=len(durations)))
    for checkpoint, duration in zip(made, durations, strict=True):
        checkpoint.end_to_end_duration = duration
    Checkpoint.objects.bulk_update(made, ["end_to_end_duration"])


def always(job: Job, now: datetime) -> Span:
    return Span(now - timedelta(days=400), now)


def flinks_percentile(values: list[int], fraction: float) -> float:
    """Compute a percentile with the steps of Flink's DescriptiveStatistics."""
    ordered = sorted(values)
    place = fraction * (len(ordered) + 1)
    if place < 1:
        return ordered[0]
    if place >= len(ordered):
        return ordered[-1]
    lower = int(place)
    return ordered[lower - 1] + (place - lower) * (ordered[lower] - ordered[lower - 1])


def test_the_figures_are_those_that_flink_gives_for_the_same_checkpoints(run: Run, now: datetime) -> None:
    text = json.loads((SAMPLES / "checkpoints.json").read_text())
    made = make.make_checkpoints(run, now, make.Shape(count=len(RECORDED)))
    for checkpoint, figures in zip(made, RECORDED, strict=True):
        for name, value in zip(FIGURES, figures, strict=True):
            setattr(checkpoint, name, value)
    Checkpoint.objects.bulk_update(made, FIGURES)
    found = read_summary(run.job, always(run.job, now))
    for name in FIGURES:
        flinks = text["summary"][name]
        shown = {row: found.of(row, name) for row in found.rows}
        assert shown["Minimum"] == flinks["min"]
        assert int(shown["Average"] or 0) == flinks["avg"]
        assert shown["Maximum"] == flinks["max"]
        for row, key in (("p50", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("p99.9", "p999")):
            assert shown[row] == pytest.approx(flinks[key])


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57, 300])
def test_percentiles_of_any_number_of_checkpoints_are_flinks(run: Run, now: datetime, count: int) -> None:
    dice = random.Random(count)
    durations = [dice.randint(1, 10_000) for _ in range(count)]
    store(run, now, durations)
    found = read_summary(run.job, always(run.job, now))
    for name, fraction in FRACTIONS.items():
        assert found.of(name, "end_to_end_duration") == pytest.approx(flinks_percentile(durations, fraction))
    (row,) = read_by_run(run.job, always(run.job, now))
    assert row.p95 == pytest.approx(flinks_percentile(durations, 0.95))
    assert row.median == pytest.approx(flinks_percentile(durations, 0.5))


def test_too_many_checkpoints_are_sampled_and_the_page_states_the_ratio(
    viewer: Client, run: Run, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "SORTED", 100)
    store(run, now, [*range(1, 401)])
    page = viewer.get(reverse("job-summary", args=[run.job_id]), {"range": "all"})
    assert page.context["summary"].one_in == 5
    assert "from one checkpoint in 5" in page.content.decode()
    assert page.context["summary"].of("Maximum", "end_to_end_duration") == 400
    assert page.context["summary"].of("p50", "end_to_end_duration") == pytest.approx(200, abs=6)


def test_the_summary_covers_a_time_range_and_one_run_or_all(viewer: Client, run: Run, now: datetime) -> None:
    make.make_checkpoints(run, now - timedelta(days=60), make.Shape(count=40))
    later = make.make_run(run.job, now)
    make.make_checkpoints(
        later, now, make.Shape(count=7, first_id=41, failed=frozenset({2}), savepoints=frozenset({3}))
    )
    address = reverse("job-summary", args=[run.job_id])

    def completed(**asked: str) -> int:
        return int(viewer.get(address, asked).context["summary"].completed)

    assert completed(range="all") == 46
    assert completed(range="1h") == 6
    assert completed(range="all", run="1") == 40
    assert completed(range="all", kind="savepoint") == 1
    since, until = now - timedelta(days=60, minutes=1), now - timedelta(days=60, seconds=25)
    assert completed(since=since.isoformat(), until=until.isoformat()) == 4
    assert [row.number for row in viewer.get(address, {"range": "all"}).context["by_run"]] == [2, 1]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"since": "yesterday"}, "Enter a date and time"),
        ({"run": "first"}, "Enter a run number"),
        ({"since": "2026-11-21T14:00", "until": "2026-11-21T13:00"}, "The end must be later than the start."),
    ],
)
def test_an_invalid_time_is_reported_and_the_field_keeps_it(
    viewer: Client, run: Run, now: datetime, asked: dict[str, str], expected: str
) -> None:
    make.make_checkpoints(run, now, make.Shape(count=3))
    for name in ("job-summary", "job", "job-history"):
        page = viewer.get(reverse(name, args=[run.job_id]), asked)
        assert page.status_code == 400
        assert expected in page.content.decode()
        assert next(iter(asked.values())) in page.content.decode()


@pytest.mark.parametrize("name", ["job", "job-summary", "job-history"])
def test_the_number_of_queries_does_not_grow_with_runs_and_checkpoints(
    viewer: Client, run: Run, now: datetime, name: str
) -> None:
    make.make_checkpoints(run, now, make.Shape(count=30))
    address = reverse(name, args=[run.job_id]) + "?range=all"
    viewer.get(address)
    with CaptureQueriesContext(connection) as few:
        viewer.get(address)
    for number in range(2, 14):
        more = make.make_run(run.job, now, age=timedelta(days=number))
        make.make_checkpoints(more, now - timedelta(days=number), make.Shape(count=40, first_id=100 * number))
    run.job.current_run = run
    run.job.save(update_fields=["current_run"])
    with CaptureQueriesContext(connection) as many:
        viewer.get(address)
    assert len(many) <= len(few)
