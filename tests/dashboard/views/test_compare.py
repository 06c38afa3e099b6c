from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.queries.comparison import Difference
from monitoring.models import Job, OperatorCheckpoint
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job whose run 1 has checkpoints 1 to 20, and run 2 has 15 to 24 and another interval."""
    job = make.make_job(make.make_cluster(now))
    first = make.make_run(job, now, age=timedelta(hours=2), state="FAILED", ended_at=now - timedelta(hours=1))
    make.make_operators(make.make_checkpoints(first, now - timedelta(hours=1), make.Shape(count=20, base_ms=200)))
    config = make.config(30_000) | {"unaligned_checkpoints": True}
    second = make.make_run(job, now, checkpoint_config=config)
    shape = make.Shape(count=10, first_id=15, base_ms=2_000, failed=frozenset({2}))
    make.make_operators(make.make_checkpoints(second, now, shape))
    return job


def page(client: Client, job: Job, a: str, b: str) -> str:
    answer = client.get(reverse("job-compare", args=[job.pk]), {"a": a, "b": b})
    assert answer.status_code == 200, answer.context["form"].errors
    return answer.content.decode()


def test_two_checkpoints_and_their_operators_are_compared(viewer: Client, job: Job) -> None:
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"a": "1/15", "b": "15"})
    assert [side.run.number for side in answer.context["sides"]] == [1, 2]
    titles = [title for title, _ in answer.context["comparison"].groups]
    assert titles == ["Whole checkpoint", *(name for name, _ in make.VERTICES)]
    assert "Largest differences:" in answer.content.decode()
    (most, *_) = answer.context["comparison"].largest_changes
    assert "Async" in most.label
    assert most.ratio is not None
    assert most.ratio > 3


@pytest.mark.parametrize("picked", [["2/15", "1/16"], ["1/16", "2/15"]])
def test_two_selected_checkpoints_are_compared_from_the_older_to_the_newer(
    viewer: Client, job: Job, picked: list[str]
) -> None:
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"pick": picked}, follow=True)
    assert [(side.run.number, side.checkpoint_id) for side in answer.context["sides"]] == [(1, 16), (2, 15)]
    assert answer.redirect_chain == [(f"{reverse('job-compare', args=[job.pk])}?a=1%2F16&b=2%2F15", 302)]


@pytest.mark.parametrize("picked", [["2/15"], ["2/15", "2/16", "2/17"], ["x", "2/15"], ["9" * 30, "&b=1"]])
def test_other_selections_are_errors_at_the_fields(viewer: Client, job: Job, picked: list[str]) -> None:
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"pick": picked}, follow=True)
    assert answer.status_code == 400
    assert answer.context["form"].errors


def test_every_row_of_the_history_can_be_selected(viewer: Client, job: Job) -> None:
    page = viewer.get(reverse("job-history", args=[job.pk])).content.decode()
    assert page.count('name="pick" form="compare"') == 25
    assert 'value="2/24"' in page
    assert 'aria-label="Compare: checkpoint 24"' in page


def test_two_runs_are_compared_by_their_summaries_and_settings(viewer: Client, job: Job) -> None:
    text = page(viewer, job, "run 1", "run 2")
    assert "End to end duration, p95" in text
    assert "unaligned_checkpoints" in text
    assert "2 settings differ" in text


def test_two_time_ranges_are_compared(viewer: Client, job: Job, now: datetime) -> None:
    change = now - timedelta(minutes=31)  # the start of run 2
    first = f"{(change - timedelta(hours=1)).isoformat()}/{change.isoformat()}"
    second = f"{change.isoformat()}/{now.isoformat()}"
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"a": first, "b": second})
    figures = {each.label: each for _, group in answer.context["comparison"].groups for each in group}
    assert (figures["Completed"].before, figures["Completed"].after) == (20, 9)
    assert (figures["Failed"].before, figures["Failed"].after) == (0, 1)
    assert (figures["Started runs"].before, figures["Started runs"].after) == (0, 1)
    assert (figures["End to end duration, p95"].ratio or 0) > 3
    text = answer.content.decode()
    assert "2 settings differ" in text
    assert "Run 2 started" in text
    download = viewer.get(reverse("job-download", args=[job.pk, "compare", "csv"]), {"a": first, "b": second})
    assert b"Started runs" in download.getvalue()


def test_savepoints_are_not_counted_in_the_comparison_of_runs(viewer: Client, job: Job, now: datetime) -> None:
    shape = make.Shape(count=1, first_id=21, savepoints=frozenset({0}))
    make.make_checkpoints(job.runs.get(number=1), now - timedelta(hours=1), shape)
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"a": "run 1", "b": "run 2"})
    figures = {each.label: each for _, group in answer.context["comparison"].groups for each in group}
    assert figures["Completed"].before == 20
    assert (figures["Checkpointed size, maximum"].before or 0) < 10_000_000


@pytest.mark.parametrize(("before", "after", "expected"), [(100, 2_500, "(× 25)"), (2_500, 100, "(÷ 25)")])
def test_change_is_shown_as_a_ratio(before: float, after: float, expected: str) -> None:
    assert Difference("Async", "ms", before, after).sentence.endswith(expected)


def test_an_operator_with_a_new_id_is_found_by_its_name(viewer: Client, job: Job) -> None:
    OperatorCheckpoint.objects.filter(checkpoint__run__number=2, position=1).update(vertex_id="f" * 32)
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"a": "1/15", "b": "2/15"})
    assert len(answer.context["comparison"].groups) == 4


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("99", "15", "This job has no checkpoint 99."),
        ("3/15", "15", "This job has no checkpoint 15 in run 3."),
        ("run 7", "run 1", "This job has no run 7."),
        ("run 1", "15", "Compare two checkpoints, two runs or two time ranges."),
        ("<b>", "15", "“&lt;b&gt;” is no checkpoint, run or time range. Enter a checkpoint ID"),
        ("", "15", "Enter a checkpoint ID"),
        ("2026-11-21 10:00/2026-11-21 09:00", "run 1", "The end must be later than the start"),
        ("2999-11-21 10:00/2999-11-21 11:00", "run 1", "the start must be past"),
        ("2026-11-21 10:00/soon", "run 1", "Enter a checkpoint ID"),
        ("9999-12-31T23:59-23:59/9999-12-31T23:59-23:59", "run 1", "Enter a checkpoint ID"),
        ("2026-11-21 10:00/2026-11-21 11:00", "run 1", "Compare two checkpoints, two runs or two time ranges."),
    ],
)
def test_comparison_errors_appear_at_their_fields(viewer: Client, job: Job, a: str, b: str, expected: str) -> None:
    answer = viewer.get(reverse("job-compare", args=[job.pk]), {"a": a, "b": b})
    assert answer.status_code == 400
    assert expected in answer.content.decode()


def test_checkpoints_of_another_job_are_not_found(viewer: Client, job: Job, now: datetime) -> None:
    other = make.make_run(make.make_job(job.cluster, "other"), now)
    make.make_checkpoints(other, now, make.Shape(count=1, first_id=500))
    assert viewer.get(reverse("job-compare", args=[job.pk]), {"a": "500", "b": "15"}).status_code == 400


def test_small_and_unknown_differences_have_no_weight() -> None:
    assert Difference("Sync", "ms", 1, 15).weight == 0
    assert Difference("Sync", "ms", 1000, 4000).weight == Difference("Sync", "ms", 4000, 1000).weight == 2
    assert Difference("Full size", "bytes", None, 10**9).weight == 0
