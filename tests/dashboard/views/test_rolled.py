"""Long time ranges are computed from roll-ups and differ from the checkpoints at most by the shown error."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dashboard.percentiles import FRACTIONS
from dashboard.queries import rolled
from dashboard.queries.series import Span
from dashboard.queries.summary import MEASURES, Summary, read_by_run, read_summary
from monitoring.history import stretches
from monitoring.history.quantiles import ROLLED
from monitoring.models import Checkpoint, Job, Run
from tests.dashboard import builders as make
from tests.monitoring.history.conftest import Pipeline, dsn
from tests.monitoring.history.percentiles import near

pytestmark = pytest.mark.django_db(transaction=True)
DAYS = 40


@pytest.fixture
def pipeline(transactional_db: None, tmp_path: Path) -> Pipeline:
    path = tmp_path / "dsn"
    path.write_text(dsn())
    return Pipeline(path)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolled, "EXACT", 40)


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job with three runs that overlap by a day. One of ten checkpoints fails."""
    dice, made = random.Random(11), make.make_job(make.make_cluster(now))
    for number in range(3):
        begin = now - timedelta(days=DAYS * (3 - number) / 3)
        run = make.make_run(made, now, age=now - begin)
        end = min(now, begin + timedelta(days=DAYS / 3 + 1))
        Run.objects.filter(pk=run.pk).update(ended_at=None if number == 2 else end)
        Checkpoint.objects.bulk_create(
            checkpoint(run, n, begin + (end - begin) * dice.random(), dice) for n in range(150)
        )
    return made


def checkpoint(run: Run, number: int, at: datetime, dice: random.Random) -> Checkpoint:
    figures = {m.name: round(10 ** (dice.random() * 7)) for m in MEASURES}
    done = dice.random() < 0.9
    return Checkpoint(
        run=run,
        checkpoint_id=number + 1,
        triggered_at=at,
        status="COMPLETED" if done else "FAILED",
        is_savepoint=dice.random() < 0.1,
        **(figures if done else {}),
    )


def of_the_rows(job: Job, span: Span) -> dict[str, list[int]]:
    rows = Checkpoint.objects.filter(run__job=job, triggered_at__range=(span.start, span.end), status="COMPLETED")
    rows = rows.filter(run__number=span.run) if span.run else rows
    return {m.name: sorted(rows.values_list(m.name, flat=True)) for m in MEASURES}


def agree(summary: Summary, job: Job, span: Span) -> None:
    exact = of_the_rows(job, span)
    assert summary.completed == len(exact["state_size"])
    for name in ROLLED:
        values = exact[name]
        assert summary.of("Minimum", name) == values[0]
        assert summary.of("Maximum", name) == values[-1]
        assert summary.of("Average", name) == pytest.approx(sum(values) / len(values))
        for label, share in FRACTIONS.items():
            assert summary.of(label, name) == near(values, share)


def spans(now: datetime) -> list[Span]:
    dice = random.Random(3)
    moments = [now - timedelta(days=DAYS * dice.random()) for _ in range(16)]
    found = [Span(*sorted(pair)) for pair in zip(moments[::2], moments[1::2], strict=True)]
    return [Span(now - timedelta(days=2 * DAYS), now), *(s for s in found if s.end - s.start > timedelta(days=6))]


def test_the_summary_of_any_range_agrees_with_all_checkpoints(job: Job, now: datetime, pipeline: Pipeline) -> None:
    pipeline.run()
    dice, some = random.Random(4), list(Checkpoint.objects.filter(run__job=job).order_by("triggered_at"))
    Checkpoint.objects.filter(pk__in=[each.pk for each in some[::50]]).update(
        end_to_end_duration=77, status="COMPLETED"
    )
    Checkpoint.objects.filter(pk__in=[each.pk for each in some[7::60]]).delete()
    newest = job.runs.get(number=3)
    Checkpoint.objects.bulk_create(checkpoint(newest, 500 + n, now - timedelta(hours=30 * n), dice) for n in range(9))
    Checkpoint.objects.filter(run__job=job, status="COMPLETED", state_size=None).update(
        **{m.name: 5 for m in MEASURES if m.name != "end_to_end_duration"}
    )
    for span in spans(now):
        found = read_summary(job, span)
        assert found.rolled
        agree(found, job, span)


def test_the_summary_of_a_run_has_only_its_checkpoints(job: Job, now: datetime, pipeline: Pipeline) -> None:
    pipeline.run()
    for number in (1, 2, 3):
        span = Span(now - timedelta(days=2 * DAYS), now, number)
        found = read_summary(job, span)
        assert found.rolled
        agree(found, job, span)
    whole = Span(now - timedelta(days=2 * DAYS), now)
    of_runs = {row.number: row for row in read_by_run(job, whole, rolled=True)}
    assert list(of_runs) == [3, 2, 1]
    for exact in read_by_run(job, whole):
        row = of_runs[exact.number]
        assert (row.completed, row.failed, row.longest) == (exact.completed, exact.failed, exact.longest)
        assert row.state_size == exact.state_size
        durations = of_the_rows(job, Span(whole.start, whole.end, exact.number))["end_to_end_duration"]
        assert row.p95 == near(durations, 0.95)


def page(viewer: Client, job: Job, **asked: str) -> Any:
    return viewer.get(reverse("job-summary", args=[job.pk]), {"range": "all", **asked})


def test_the_page_states_the_error_of_long_ranges_and_the_others_are_exact(
    viewer: Client, job: Job, now: datetime, pipeline: Pipeline
) -> None:
    pipeline.run()
    long = page(viewer, job)
    assert long.context["summary"].rolled
    assert "p95 lies between the exact p93.7 and p96.3" in long.content.decode()
    assert not page(viewer, job, range="24h").context["summary"].rolled
    savepoints = page(viewer, job, kind="savepoint")
    assert not savepoints.context["summary"].rolled
    assert "Percentiles are computed as in Flink" in savepoints.content.decode()
    download = viewer.get(reverse("job-download", args=[job.pk, "summary", "csv"]), {"range": "all"})
    assert "p95 between p93.7 and p96.3" in b"".join(download).decode()


def test_figures_are_the_same_if_the_pipeline_is_off_or_behind(
    viewer: Client, job: Job, now: datetime, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = Span(now - timedelta(days=2 * DAYS), now)
    off = read_summary(job, span)
    assert not off.rolled
    pipeline.run()
    Checkpoint.objects.filter(run__job=job, status="COMPLETED").update(end_to_end_duration=3)
    monkeypatch.setattr(stretches, "MOST_BEHIND", 20)
    shown = page(viewer, job)
    assert not shown.context["summary"].rolled
    assert "Roll-ups are not used: roll-ups are behind: they were last computed" in shown.content.decode()
    assert {shown.context["summary"].of(name, "end_to_end_duration") for name in ("Minimum", "Maximum", "p50")} == {3}
    assert shown.context["summary"].completed == off.completed


def test_the_summary_of_archived_checkpoints_comes_from_roll_ups(
    job: Job, now: datetime, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are deleted without triggers, as when a partition is dropped."""
    monkeypatch.setattr(rolled, "EXACT", 10_000)
    pipeline.run()
    span = Span(now - timedelta(days=30), now - timedelta(days=12))
    before = read_summary(job, span)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("DELETE FROM monitoring_checkpoint WHERE triggered_at < %s", [now - timedelta(days=13)])
        cursor.execute("SET session_replication_role = DEFAULT")
    after = read_summary(job, span)
    assert (before.rolled, after.rolled) == (False, True)
    assert after.completed > 0.9 * before.completed  # the partial hours at both ends are missing


@pytest.mark.parametrize("name", ["durations", "sizes", "moved", "alignments", "delays"])
def test_a_chart_of_a_long_range_agrees_with_the_checkpoints(
    viewer: Client, job: Job, now: datetime, pipeline: Pipeline, name: str
) -> None:
    pipeline.run()
    answer = viewer.get(reverse("job-chart", args=[job.pk, name]), {"range": "1y"}).json()
    assert answer["rolled"]
    assert "p95 lies between the exact p93.7 and p96.3" in answer["note"]
    done = Checkpoint.objects.filter(run__job=job, status="COMPLETED")
    highest = {
        "durations": "end_to_end_duration",
        "moved": "processed_data",
        "alignments": "alignment_max",
        "delays": "start_delay_max",
    }
    lines = {trace["meta"]["role"]: trace for trace in answer["figure"]["data"]}
    if name in highest:
        exact = max(done.values_list(highest[name], flat=True))
        assert max(filter(None, lines["longest"]["y"])) == exact  # None is an hour without checkpoints
        assert all(
            m <= p <= h for m, p, h in zip(*(lines[r]["y"] for r in ("median", "p95", "longest")), strict=True) if m
        )
    else:
        assert max(filter(None, lines["state"]["y"])) <= max(done.values_list("state_size", flat=True))
    table = viewer.get(reverse("job-chart-table", args=[job.pk, name]), {"range": "1y"}).content.decode()
    assert "Median" in table
    short = viewer.get(reverse("job-chart", args=[job.pk, name]), {"range": "1h"}).json()
    assert "rolled" not in short


def test_the_figure_of_a_long_range_has_the_trend_of_alignment(viewer: Client, job: Job, pipeline: Pipeline) -> None:
    pipeline.run()
    body = viewer.get(reverse("job-chart", args=[job.pk, "lanes"]), {"range": "1y"}).json()
    assert body["rolled"]
    assert "p95 lies between the exact p93.7 and p96.3" in body["note"]
    drawn = [trace["meta"]["role"] for trace in body["figure"]["data"]]
    assert (drawn.count("longest"), drawn.count("p95"), drawn.count("median"), drawn.count("state")) == (2, 2, 2, 1)
    assert "steps" not in drawn
    assert "failed" in drawn
    short = viewer.get(reverse("job-chart", args=[job.pk, "lanes"]), {"range": "1h"}).json()
    assert "rolled" not in short


def test_the_tiles_of_a_long_range_are_marked_as_approximate(
    viewer: Client, job: Job, now: datetime, pipeline: Pipeline
) -> None:
    pipeline.run()
    shown = viewer.get(reverse("job", args=[job.pk]), {"range": "all"})
    tiles = shown.context["tiles"]
    durations = of_the_rows(job, Span(now - timedelta(days=2 * DAYS), now))["end_to_end_duration"]
    assert (tiles.rolled, tiles.duration_max, tiles.completed) == (True, durations[-1], len(durations))
    assert tiles.duration_p95 == near(durations, 0.95)
    assert "approximate, incl. savepoints" in shown.content.decode()
    assert (
        tiles.state_size
        == Checkpoint.objects.filter(run__job=job, run__number=3, status="COMPLETED", is_savepoint=False)
        .latest("triggered_at")
        .state_size
    )


def test_the_number_of_queries_does_not_depend_on_the_length_of_the_range(
    viewer: Client, job: Job, pipeline: Pipeline
) -> None:
    pipeline.run()
    counts = set()
    for days in (10, 20, 39):
        page(viewer, job, since=ago(days))
        with CaptureQueriesContext(connection) as asked:
            page(viewer, job, since=ago(days))
        counts.add(len(asked))
    assert len(counts) == 1


def ago(days: int) -> str:
    return (timezone.now() - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S")
