from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.queries.history import PAGE_SIZE, Cursor, HistoryFilter, read_history
from monitoring.models import Checkpoint, CheckpointGap, Job, Run
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    """Two runs: 40 checkpoints, then 30 more with a failed one and a savepoint."""
    job = make.make_job(make.make_cluster(now))
    first = make.make_run(job, now, age=timedelta(hours=1), ended_at=now - timedelta(minutes=6), state="FAILED")
    make.make_checkpoints(first, now - timedelta(minutes=7), make.Shape(count=40))
    second = make.make_run(job, now, age=timedelta(minutes=6), restored_checkpoint_id=40, restored_is_savepoint=False)
    shape = make.Shape(count=30, first_id=41, failed=frozenset({4}), savepoints=frozenset({9}))
    make.make_checkpoints(second, now, shape)
    return job


def ids(rows: list[object]) -> list[int]:
    return [row.checkpoint.checkpoint_id for row in rows]  # type: ignore[attr-defined]


def test_pages_follow_each_other_over_all_runs_without_gap_or_repeat(job: Job) -> None:
    seen: list[int] = []
    before = None
    while True:
        page = read_history(job, HistoryFilter(), before=before, after=None)
        seen += ids(page.rows)
        if page.older is None:
            break
        before = page.older
    assert seen == list(range(70, 0, -1))


def test_going_back_shows_the_page_one_came_from(job: Job) -> None:
    first = read_history(job, HistoryFilter(), before=None, after=None)
    second = read_history(job, HistoryFilter(), before=first.older, after=None)
    back = read_history(job, HistoryFilter(), before=None, after=second.newer)
    assert ids(back.rows) == ids(first.rows)
    assert first.newer is None
    assert len(first.rows) == PAGE_SIZE


def test_rows_that_arrive_meanwhile_do_not_shift_the_pages(job: Job, now: datetime) -> None:
    first = read_history(job, HistoryFilter(), before=None, after=None)
    assert job.current_run is not None
    make.make_checkpoints(job.current_run, now + timedelta(minutes=1), make.Shape(count=3, first_id=71))
    second = read_history(job, HistoryFilter(), before=first.older, after=None)
    assert ids(second.rows)[0] == ids(first.rows)[-1] - 1


@pytest.mark.parametrize(
    ("query", "found"),
    [({"status": "FAILED"}, [66]), ({"kind": "savepoint"}, [61]), ({"status": "FAILED", "kind": "savepoint"}, [])],
)
def test_it_is_filtered_by_status_and_kind(operator: Client, job: Job, query: dict[str, str], found: list[int]) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), query).context["page"]
    assert ids(page.rows) == found
    assert page.total == len(found)


@pytest.mark.parametrize("nonsense", [{"before": "yesterday"}, {"status": "BROKEN"}, {"after": "2026-11-21_x"}])
def test_nonsense_in_the_address_shows_the_newest(operator: Client, job: Job, nonsense: dict[str, str]) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), nonsense).context["page"]
    assert ids(page.rows)[0] == 70


def test_a_cursor_survives_the_address_bar() -> None:
    cursor = Cursor(datetime.fromisoformat("2026-11-21T14:02:36.123456+00:00"), 42)
    assert Cursor.parse(str(cursor)) == cursor


def test_each_run_has_a_heading_that_says_what_it_was_restored_from(operator: Client, job: Job) -> None:
    page = operator.get(reverse("job-history", args=[job.pk])).content.decode()
    assert "<b>Run 2</b>" in page
    assert "restored from checkpoint 40" in page


def test_ids_that_nobody_could_see_are_shown_as_a_gap(operator: Client, job: Job, now: datetime) -> None:
    Checkpoint.objects.filter(run=job.current_run, checkpoint_id__in=(60, 61, 62)).delete()
    CheckpointGap.objects.create(run=job.current_run, first_id=60, last_id=62, noticed_at=now)
    assert "60–62 were not seen" in operator.get(reverse("job-history", args=[job.pk])).content.decode()


def test_news_are_told_only_when_there_are_some(operator: Client, job: Job) -> None:
    newest, older = Checkpoint.objects.filter(run__job=job)[:2]
    address = reverse("job-history-news", args=[job.pk])
    assert operator.get(address, {"seen": str(Cursor(newest.triggered_at, newest.pk))}).content.strip() == b""
    assert b"Newer checkpoints" in operator.get(address, {"seen": str(Cursor(older.triggered_at, older.pk))}).content


def test_a_long_history_costs_the_queries_of_a_short_one(operator: Client, job: Job, now: datetime) -> None:
    with CaptureQueriesContext(connection) as short:
        operator.get(reverse("job-history", args=[job.pk]))
    run = Run.objects.get(job=job, number=1)
    make.make_checkpoints(run, now - timedelta(hours=2), make.Shape(count=1000, first_id=1001))
    with CaptureQueriesContext(connection) as long:
        operator.get(reverse("job-history", args=[job.pk]))
    assert len(long) == len(short)


def test_an_opened_row_shows_operators_and_their_subtasks_with_all_figures(operator: Client, job: Job) -> None:
    checkpoint = Checkpoint.objects.filter(run=job.current_run, status="COMPLETED").first()
    assert checkpoint is not None
    make.make_operators([checkpoint])
    page = operator.get(reverse("checkpoint", args=[checkpoint.pk])).content.decode()
    assert "aggregate by aircraft and route" in page
    keyed = checkpoint.operators.get(position=1)
    subtasks = operator.get(reverse("operator", args=[keyed.pk])).context["subtasks"]
    assert [row.name for row in subtasks.summary] == ["Minimum", "Average", "Maximum"]
    assert [row.index for row in subtasks.rows] == [0, 1, 2, 3]
    alignment = [column.field for column in subtasks.columns].index("subtask_alignment")
    assert subtasks.summary[2].cells[alignment].value == checkpoint.alignment_max
    assert [row.cells[alignment].is_maximum for row in subtasks.rows] == [False, False, True, False]


def test_subtasks_that_owe_their_acknowledgement_are_rows_too(operator: Client, job: Job) -> None:
    failed = Checkpoint.objects.get(run=job.current_run, status="FAILED")
    make.make_operators([failed])
    page = operator.get(reverse("operator", args=[failed.operators.get(position=1).pk])).content.decode()
    assert page.count("did not acknowledge") == 2
