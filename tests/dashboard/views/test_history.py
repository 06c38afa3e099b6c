from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.queries.history import PAGE_SIZE, Cursor, HistoryFilter, read_history
from monitoring.models import Checkpoint, CheckpointGap, CounterSample, Job, Run, RunStateChange
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job with two runs: 40 checkpoints, then 30 with a failed checkpoint and a savepoint."""
    job = make.make_job(make.make_cluster(now))
    first = make.make_run(job, now, age=timedelta(hours=1), ended_at=now - timedelta(minutes=6), state="FAILED")
    make.make_checkpoints(first, now - timedelta(minutes=7), make.Shape(count=40))
    second = make.make_run(job, now, age=timedelta(minutes=6), restored_checkpoint_id=40, restored_is_savepoint=False)
    shape = make.Shape(count=30, first_id=41, failed=frozenset({4}), savepoints=frozenset({9}))
    make.make_checkpoints(second, now, shape)
    return job


def ids(rows: list[object]) -> list[int]:
    return [row.checkpoint.checkpoint_id for row in rows]  # type: ignore[attr-defined]


def test_pages_have_each_checkpoint_of_all_runs_once(job: Job) -> None:
    seen: list[int] = []
    before = None
    while True:
        page = read_history(job, HistoryFilter(), before=before, after=None)
        seen += ids(page.rows)
        if page.older is None:
            break
        before = page.older
    assert seen == list(range(70, 0, -1))


def test_going_back_shows_the_previous_page(job: Job) -> None:
    first = read_history(job, HistoryFilter(), before=None, after=None)
    second = read_history(job, HistoryFilter(), before=first.older, after=None)
    back = read_history(job, HistoryFilter(), before=None, after=second.newer)
    assert ids(back.rows) == ids(first.rows)
    assert first.newer is None
    assert len(first.rows) == PAGE_SIZE


def test_new_rows_do_not_shift_the_pages(job: Job, now: datetime) -> None:
    first = read_history(job, HistoryFilter(), before=None, after=None)
    assert job.current_run is not None
    make.make_checkpoints(job.current_run, now + timedelta(minutes=1), make.Shape(count=3, first_id=71))
    second = read_history(job, HistoryFilter(), before=first.older, after=None)
    assert ids(second.rows)[0] == ids(first.rows)[-1] - 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "FAILED"}, [66]),
        ({"kind": "savepoint"}, [61]),
        ({"status": "FAILED", "kind": "savepoint"}, []),
        ({"run": "1", "took": "1 ms", "status": "FAILED"}, []),
        ({"kind": "SYNC_SAVEPOINT"}, []),
    ],
)
def test_checkpoints_are_filtered_by_status_and_kind(
    operator: Client, job: Job, query: dict[str, str], found: list[int]
) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), query).context["page"]
    assert ids(page.rows) == found
    assert page.total == len(found)


@pytest.mark.parametrize("nonsense", [{"before": "yesterday"}, {"status": "BROKEN"}, {"after": "2026-11-21_x"}])
def test_an_invalid_address_shows_the_newest_checkpoints(operator: Client, job: Job, nonsense: dict[str, str]) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), nonsense).context["page"]
    assert ids(page.rows)[0] == 70


def test_a_cursor_is_the_same_after_formatting_and_parsing() -> None:
    cursor = Cursor(datetime.fromisoformat("2026-11-21T14:02:36.123456+00:00"), 42)
    assert Cursor.parse(str(cursor)) == cursor


def test_the_alignment_of_each_checkpoint_has_a_column(operator: Client, job: Job) -> None:
    Checkpoint.objects.filter(run=job.current_run, checkpoint_id=70).update(alignment_max=1_234)
    page = page_of(operator, job)
    assert page.count('data-name="Alignment"') == PAGE_SIZE
    assert "1.23 s" in page
    assert set(re.findall(r'colspan="(\d+)"', page)) == {str(page.count('<th scope="col"'))}
    found = operator.get(reverse("job-history", args=[job.pk]), {"alignment": "1 s", "run": "2"}).context["page"]
    assert 70 in ids(found.rows)
    assert all(row.checkpoint.alignment_max >= 1_000 for row in found.rows)


def test_each_run_has_a_heading_that_says_what_it_was_restored_from(operator: Client, job: Job) -> None:
    page = operator.get(reverse("job-history", args=[job.pk])).content.decode()
    assert "<b>Run 2</b>" in page
    assert "restored from checkpoint 40" in page


def test_missed_checkpoint_ids_are_shown_as_a_gap(operator: Client, job: Job, now: datetime) -> None:
    Checkpoint.objects.filter(run=job.current_run, checkpoint_id__in=(60, 61, 62)).delete()
    CheckpointGap.objects.create(run=job.current_run, first_id=60, last_id=62, noticed_at=now)
    assert "60–62 were not recorded" in operator.get(reverse("job-history", args=[job.pk])).content.decode()


def test_a_note_about_newer_checkpoints_appears_only_if_there_are_any(operator: Client, job: Job) -> None:
    newest, older = Checkpoint.objects.filter(run__job=job)[:2]
    address = reverse("job-history-news", args=[job.pk])
    assert operator.get(address, {"seen": str(Cursor(newest.triggered_at, newest.pk))}).content.strip() == b""
    assert b"Newer checkpoints" in operator.get(address, {"seen": str(Cursor(older.triggered_at, older.pk))}).content


def test_only_pending_rows_are_refreshed_until_they_finish(operator: Client, job: Job) -> None:
    first, second, done = Checkpoint.objects.filter(run__job=job).order_by("-triggered_at")[:3]
    pending = {"status": "IN_PROGRESS", "end_to_end_duration": None, "latest_ack_at": None}
    Checkpoint.objects.filter(pk__in=[first.pk, second.pk]).update(**pending)
    shown = re.findall(r'name="pending" value="(\d+)"', page_of(operator, job))
    assert {int(key) for key in shown} == {first.pk, second.pk}
    Checkpoint.objects.filter(pk=first.pk).update(status="COMPLETED", end_to_end_duration=2_345)
    asked = {"seen": str(Cursor(first.triggered_at, first.pk)), "pending": shown}
    news = operator.get(reverse("job-history-news", args=[job.pk]), asked).content.decode()
    assert set(re.findall(r'<tr class="link" id="checkpoint-(\d+)" hx-swap-oob="true">', news)) == set(shown)
    assert re.findall(r'name="pending" value="(\d+)"', news) == [str(second.pk)]
    assert "2.35 s" in news
    assert "detail-row" not in news
    assert f'id="checkpoint-{done.pk}"' not in news


@pytest.mark.parametrize("key", ["-1", "x", "9" * 30, "", "999999999999"])
def test_an_unknown_pending_row_is_ignored(operator: Client, job: Job, key: str) -> None:
    newest = Checkpoint.objects.filter(run__job=job).latest("triggered_at")
    asked = {"seen": str(Cursor(newest.triggered_at, newest.pk)), "pending": key}
    answer = operator.get(reverse("job-history-news", args=[job.pk]), asked)
    assert (answer.status_code, answer.content.strip()) == (200, b"")


def test_a_pending_row_of_another_job_is_not_shown(operator: Client, job: Job, now: datetime) -> None:
    run = make.make_run(make.make_job(job.cluster, "other"), now)
    (other,) = make.make_checkpoints(run, now, make.Shape(count=1))
    Checkpoint.objects.filter(pk=other.pk).update(status="IN_PROGRESS")
    asked = {"pending": str(other.pk)}
    assert b"<tr" not in operator.get(reverse("job-history-news", args=[job.pk]), asked).content


def test_a_long_history_needs_as_many_queries_as_a_short_one(operator: Client, job: Job, now: datetime) -> None:
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
    row = operator.get(reverse("checkpoint", args=[checkpoint.pk]), headers={"HX-Request": "true"})
    page = row.content.decode()
    assert "<html" not in page
    assert "aggregate by aircraft and route" in page
    keyed = checkpoint.operators.get(position=1)
    subtasks = operator.get(reverse("operator", args=[keyed.pk])).context["subtasks"]
    assert [row.name for row in subtasks.summary][:3] == ["Minimum", "Average", "Maximum"]
    assert [row.index for row in subtasks.rows] == [0, 1, 2, 3]
    alignment = [column.field for column in subtasks.columns].index("subtask_alignment")
    assert subtasks.summary[2].cells[alignment].value == checkpoint.alignment_max
    assert [row.cells[alignment].is_maximum for row in subtasks.rows] == [False, False, True, False]


def test_subtasks_without_an_acknowledgement_have_rows(operator: Client, job: Job) -> None:
    failed = Checkpoint.objects.get(run=job.current_run, status="FAILED")
    make.make_operators([failed])
    page = operator.get(reverse("operator", args=[failed.operators.get(position=1).pk])).content.decode()
    assert page.count("did not acknowledge") == 2


def page_of(client: Client, job: Job, **asked: str) -> str:
    return client.get(reverse("job-history", args=[job.pk]), asked).content.decode()


def test_the_heading_of_a_run_shows_how_and_why_it_ended(operator: Client, job: Job) -> None:
    Run.objects.filter(job=job, number=1).update(exception="ConnectException: refused (sink)")
    page = page_of(operator, job, run="1")
    assert '<b class="end-bad">FAILED</b>' in page
    assert "after 54 min" in page
    assert "ConnectException: refused (sink)" in page


@pytest.mark.parametrize("state", ["LOST", "CANCELED", "FINISHED"])
def test_the_heading_of_a_run_that_did_not_fail_shows_no_exception(operator: Client, job: Job, state: str) -> None:
    Run.objects.filter(job=job, number=1).update(state=state, exception="ConnectException: refused (sink)")
    assert "ConnectException" not in page_of(operator, job, run="1")


def test_a_run_without_checkpoints_has_a_heading_in_order(operator: Client, job: Job, now: datetime) -> None:
    Run.objects.filter(job=job, number=2).update(number=3)
    at = now - timedelta(minutes=6, seconds=30)
    ended = at + timedelta(seconds=9)
    fields = {"number": 2, "state": "FAILED", "started_at": at, "ended_at": ended, "observed_at": now}
    Run.objects.create(job=job, engine_job_id="f" * 32, exception="no slot", **fields)
    whole = page_of(operator, job, before=str(Cursor(now - timedelta(minutes=3), 0)))
    assert whole.index("<b>Run 3</b>") < whole.index("<b>Run 2</b>") < whole.index("<b>Run 1</b>")
    assert "no slot" in whole
    assert "<b>Run 2</b>" not in page_of(operator, job, status="COMPLETED")


def test_a_restart_by_the_engine_is_shown_between_the_checkpoints(operator: Client, job: Job, now: datetime) -> None:
    run = job.current_run
    for seconds, restored in ((300, 1), (120, 1), (55, 2)):
        counts = {"restored": restored, "total": 9, "in_progress": 0, "completed": 9, "failed": 0}
        CounterSample.objects.create(run=run, at=now - timedelta(seconds=seconds), **counts)
    page = page_of(operator, job)
    assert page.count("The engine restarted run 2") == 1
    between = [checkpoint.pk for checkpoint in Checkpoint.objects.filter(run=run, checkpoint_id__in=(64, 65))]
    place = page.index("The engine restarted run 2")
    assert page.index(f'id="checkpoint-{max(between)}"') < place < page.index(f'id="checkpoint-{min(between)}"')


def test_restarts_are_shown_with_their_time_or_if_missed_by_polls_as_a_number(
    operator: Client, job: Job, now: datetime
) -> None:
    """A restart that restores from local state does not increase the engine's counter of restores."""
    run = job.current_run
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(minutes=30))
    for seconds, restored in ((300, 1), (120, 1), (55, 4)):
        counts = {"restored": restored, "total": 9, "in_progress": 0, "completed": 9, "failed": 0}
        CounterSample.objects.create(run=run, at=now - timedelta(seconds=seconds), **counts)
    for seconds, source in ((1750, "CREATED"), (200, "RESTARTING"), (70, "RUNNING")):
        at = now - timedelta(seconds=seconds)
        RunStateChange.objects.create(run=run, at=at, source=source, target="RUNNING")
    text = re.sub(r"<[^>]+>", "", page_of(operator, job))
    assert re.findall(r"The engine restarted run 2 (2 times before|at) ", text) == ["2 times before", "at", "at"]


@pytest.mark.parametrize(("after", "times"), [((1, 3), 1), ((2, 3), 2), ((0, 3), 0), ((1, 201), 0)])
def test_a_restart_is_shown_although_a_new_job_manager_resets_the_counters(
    operator: Client, job: Job, now: datetime, after: tuple[int, int], times: int
) -> None:
    for seconds, (restored, total) in ((120, (1, 200)), (55, after)):
        counts = {"restored": restored, "total": total, "in_progress": 0, "completed": total, "failed": 0}
        CounterSample.objects.create(run=job.current_run, at=now - timedelta(seconds=seconds), **counts)
    page = page_of(operator, job)
    assert ("The engine restarted run 2" in page) == (times > 0)
    assert (" 2 times" in page) == (times == 2)


@pytest.mark.parametrize(
    ("asked", "first", "total"),
    [
        ({"run": "1"}, 40, 40),
        ({"took": "10 s"}, 66, 1),
        ({"size": "2 TB"}, None, 0),
        ({"alignment": "1 h"}, None, 0),
        ({"alignment": "1 ms", "run": "1"}, 40, 40),
        ({"kind": "UNALIGNED_CHECKPOINT"}, None, 0),
        ({"took": "9 s", "status": "FAILED", "run": "2"}, 66, 1),
    ],
)
def test_checkpoints_are_filtered_by_run_time_duration_and_size(
    operator: Client, job: Job, asked: dict[str, str], first: int | None, total: int
) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), asked).context["page"]
    assert page.total == total
    assert (ids(page.rows) or [None])[0] == first


def test_checkpoints_are_filtered_by_time(operator: Client, job: Job, now: datetime) -> None:
    asked = {"since": (now - timedelta(minutes=8)).isoformat(), "until": (now - timedelta(seconds=95)).isoformat()}
    page = operator.get(reverse("job-history", args=[job.pk]), asked).context["page"]
    assert ids(page.rows) == list(range(60, 34, -1))[:PAGE_SIZE]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"took": "soon"}, "Enter a number and a unit (ms, s, min or h)"),
        ({"size": "-4 GB"}, "is not allowed: from 0 B to"),
        ({"kind": "BIG"}, "BIG is not one of the available choices"),
    ],
)
def test_an_invalid_filter_is_reported_at_its_field_and_ignored(
    operator: Client, job: Job, asked: dict[str, str], expected: str
) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), asked)
    assert page.status_code == 400
    assert expected in page.content.decode()
    assert page.context["page"].total == 70


def test_the_oldest_page_is_one_click_away(operator: Client, job: Job) -> None:
    page = operator.get(reverse("job-history", args=[job.pk]), {"after": str(Cursor.beginning())}).context["page"]
    assert ids(page.rows) == list(range(25, 0, -1))
    assert page.older is None


@pytest.mark.nightly
def test_page_1000_reads_no_rows_of_earlier_pages(job: Job, now: datetime) -> None:
    run = Run.objects.get(job=job, number=1)
    make.make_checkpoints(run, now - timedelta(hours=1), make.Shape(count=26_000, first_id=1001))
    deep = Cursor(now - timedelta(hours=1) - timedelta(seconds=10 * 25_000), 0)
    older, runs = 1_000, 2
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE monitoring_checkpoint")
    assert rows_read(job, None) <= 100
    # PostgreSQL may read older rows once for each run. On Mondays they are in a partition where the planner does so.
    assert rows_read(job, deep) <= older * runs


def rows_read(job: Job, before: Cursor | None) -> int:
    """Return the maximum of rows that a step of the plan reads in the page's statement."""
    with CaptureQueriesContext(connection) as asked:
        read_history(job, HistoryFilter(), before=before, after=None)
    page = next(q["sql"] for q in asked.captured_queries if "CROSS JOIN LATERAL" in q["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {page}")
        return max(steps(cursor.fetchone()[0][0]["Plan"]))


def steps(plan: dict[str, Any]) -> Iterator[int]:
    yield int(plan["Actual Rows"] * plan["Actual Loops"]) + int(plan.get("Rows Removed by Filter", 0))
    for part in plan.get("Plans", ()):
        yield from steps(part)
