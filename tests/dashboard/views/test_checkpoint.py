from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.queries.waterfall import MOST_LANES, Bar, waterfall_of
from dashboard.views.checkpoints import SUBTASKS_A_PAGE
from monitoring.models import Checkpoint, OperatorCheckpoint, RunException
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def checkpoint(now: datetime) -> Checkpoint:
    run = make.make_run(make.make_job(make.make_cluster(now)), now)
    made = make.make_checkpoints(run, now, make.Shape(count=5, failed=frozenset({0})))
    make.make_operators(made)
    return made[2]


def subtasks(count: int, **arrays: list[int | bool | None]) -> OperatorCheckpoint:
    return OperatorCheckpoint(name="keyed", num_subtasks=count, num_acknowledged_subtasks=count, **arrays)


def one(**figures: int | bool | None) -> OperatorCheckpoint:
    return subtasks(1, **{f"subtask_{name}": [value] for name, value in figures.items()})


def test_phases_of_an_aligned_subtask_follow_each_other() -> None:
    operator = one(end_to_end=1000, start_delay=100, alignment=300, sync=50, **{"async": 500}, unaligned=False)
    (lane,) = waterfall_of([operator]).lanes
    assert lane.bars == (
        Bar("start-delay", 0, 100),
        Bar("alignment", 100, 300),
        Bar("sync", 400, 50),
        Bar("async", 450, 500),
        Bar("rest", 950, 50),
    )


def test_unaligned_subtask_aligns_during_its_snapshot() -> None:
    operator = one(end_to_end=700, start_delay=100, alignment=550, sync=50, **{"async": 500}, unaligned=True)
    (lane,) = waterfall_of([operator]).lanes
    assert Bar("alignment", 100, 550, overlaps=True) in lane.bars
    assert Bar("async", 150, 500) in lane.bars
    assert Bar("rest", 650, 50) in lane.bars


def test_phases_longer_than_the_total_are_drawn_completely() -> None:
    fall = waterfall_of([one(end_to_end=90, start_delay=60, alignment=0, sync=10, **{"async": 40}, unaligned=False)])
    assert fall.length == 110
    assert [bar.phase for bar in fall.lanes[0].bars] == ["start-delay", "sync", "async"]


def test_a_subtask_without_an_acknowledgement_has_a_line_without_bars() -> None:
    late = subtasks(2, subtask_end_to_end=[10, None], subtask_sync=[10, None])
    assert [lane.bars for lane in waterfall_of([late]).lanes] == [(Bar("sync", 0, 10),), ()]


def test_waterfall_shows_the_slowest_subtasks_and_counts_the_rest() -> None:
    fall = waterfall_of([subtasks(500, subtask_end_to_end=list(range(500)))])
    assert [lane.subtask for lane in fall.lanes] == list(range(500 - MOST_LANES, 500))
    assert fall.left_out == 500 - MOST_LANES


def test_the_page_shows_every_figure_of_the_checkpoint(viewer: Client, checkpoint: Checkpoint) -> None:
    page = viewer.get(reverse("checkpoint", args=[checkpoint.pk])).content.decode()
    assert f"Checkpoint {checkpoint.checkpoint_id}</h2>" in page
    assert checkpoint.external_path in page
    assert page.count('<svg class="lane"') == 6
    assert "Duration by subtask" in page


def test_operators_of_a_checkpoint_are_sorted_by_any_column(viewer: Client, checkpoint: Checkpoint) -> None:
    part = f"operators-{checkpoint.pk}"
    for field, order in (("name", "asc"), ("name", "desc"), ("state_size", "desc"), ("checkpointed_size", "asc")):
        asked = {"sort": field, "order": order}
        page = viewer.get(reverse("checkpoint", args=[checkpoint.pk]), asked, headers={"HX-Target": part})
        values = [getattr(operator, field) for operator in page.context["operators"]]
        assert values == sorted(values, reverse=order == "desc")
        result = "descending" if order == "desc" else "ascending"
        assert f'aria-sort="{result}"' in page.content.decode()


def test_subtasks_are_sorted_by_any_column_with_unknown_values_last(viewer: Client, checkpoint: Checkpoint) -> None:
    operator = checkpoint.operators.get(position=1)
    OperatorCheckpoint.objects.filter(pk=operator.pk).update(subtask_sync=[7, None, 9, 8])
    address = reverse("operator", args=[operator.pk])

    def order(**asked: str) -> list[int]:
        return [row.index for row in viewer.get(address, asked).context["page"]]

    assert order(sort="subtask_sync", order="desc") == [2, 3, 0, 1]
    assert order(sort="subtask_sync", order="asc") == [0, 3, 2, 1]
    assert order(sort="index", order="desc") == [3, 2, 1, 0]
    assert order(sort="; DROP TABLE") == [0, 1, 2, 3]


def test_thousands_of_subtasks_are_divided_into_pages(viewer: Client, checkpoint: Checkpoint) -> None:
    operator = checkpoint.operators.get(position=1)
    wide = list(range(2_000))
    at = [checkpoint.triggered_at] * len(wide)
    OperatorCheckpoint.objects.filter(pk=operator.pk).update(
        num_subtasks=len(wide), subtask_ack_at=at, subtask_sync=wide
    )
    asked = {"sort": "subtask_sync", "order": "desc", "page": "2"}
    answer = viewer.get(reverse("operator", args=[operator.pk]), asked)
    assert [row.index for row in answer.context["page"]] == wide[::-1][SUBTASKS_A_PAGE : 2 * SUBTASKS_A_PAGE]
    assert "101–200 of 2,000 subtasks" in answer.content.decode()
    assert viewer.get(reverse("checkpoint", args=[checkpoint.pk])).content.decode().count("<svg class") < 100


def test_subtask_percentiles_are_shown_where_flink_returns_nan(viewer: Client, checkpoint: Checkpoint) -> None:
    operator = checkpoint.operators.get(position=1)
    OperatorCheckpoint.objects.filter(pk=operator.pk).update(subtask_sync=[10, 20, 30, 40])
    found = viewer.get(reverse("operator", args=[operator.pk])).context["subtasks"]
    sync = [column.field for column in found.columns].index("subtask_sync")
    shown = {row.name: row.cells[sync].value for row in found.summary}
    assert shown == {"Minimum": 10, "Average": 25, "Maximum": 40, "p50": 25, "p90": 40, "p95": 40, "p99": 40}


def test_failed_checkpoint_shows_its_message_and_exceptions(viewer: Client, checkpoint: Checkpoint) -> None:
    failed = Checkpoint.objects.get(run=checkpoint.run, status="FAILED")
    cause = "Checkpoint Coordinator is suspending.\n" + "\n".join(f"\tat frame {n} <script>" for n in range(400))
    Checkpoint.objects.filter(pk=failed.pk).update(failure_message=cause)
    thrown = {"name": "java.io.IOException", "root_cause": "disk full", "task": "keyed (2/4)", "digest": "d" * 32}
    RunException.objects.create(run=failed.run, at=failed.triggered_at + timedelta(seconds=1), **thrown)
    page = " ".join(viewer.get(reverse("checkpoint", args=[failed.pk])).content.decode().split())
    assert "at frame 399 &lt;script&gt;" in page
    assert "java.io.IOException: disk full" in page
    assert page.count("did not acknowledge") == 2


def test_neighbour_links_cross_runs(viewer: Client, checkpoint: Checkpoint, now: datetime) -> None:
    later = make.make_run(checkpoint.run.job, now)
    (first,) = make.make_checkpoints(later, now + timedelta(seconds=9), make.Shape(count=1, first_id=6))
    page = viewer.get(reverse("checkpoint", args=[first.pk]))
    assert page.context["newer"] is None
    assert page.context["older"].checkpoint_id == 5


def test_pending_checkpoint_refreshes_until_it_is_final(viewer: Client, checkpoint: Checkpoint) -> None:
    address = reverse("checkpoint", args=[checkpoint.pk])
    assert f'hx-get="{address}" hx-trigger="tick' not in viewer.get(address).content.decode()
    Checkpoint.objects.filter(pk=checkpoint.pk).update(final=False, status="IN_PROGRESS")
    assert f'hx-get="{address}" hx-trigger="tick' in viewer.get(address).content.decode()
    live = viewer.get(address, headers={"HX-Request": "true", "HX-Target": "checkpoint-live"}).content.decode()
    assert re.match(r'\s*<div class="stack" id="checkpoint-live"', live)


def test_more_operators_need_no_more_queries(viewer: Client, checkpoint: Checkpoint) -> None:
    address = reverse("checkpoint", args=[checkpoint.pk])
    viewer.get(address)
    with CaptureQueriesContext(connection) as few:
        viewer.get(address)
    more = [
        OperatorCheckpoint(
            checkpoint=checkpoint, vertex_id=f"{n:032x}", name=f"op {n}", position=n, **_empty(checkpoint)
        )
        for n in range(10, 60)
    ]
    OperatorCheckpoint.objects.bulk_create(more)
    with CaptureQueriesContext(connection) as many:
        viewer.get(address)
    assert len(many) == len(few)


def _empty(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "triggered_at": checkpoint.triggered_at,
        "num_subtasks": 2,
        "num_acknowledged_subtasks": 2,
        "subtask_ack_at": [checkpoint.triggered_at] * 2,
    }
