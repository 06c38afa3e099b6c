from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils.translation import override

from dashboard.charts.alignment import STEPS, alignment_figure, step_of
from dashboard.charts.durations import (
    alignments_figure,
    bar_widths,
    delays_figure,
    durations_figure,
    unattributed,
)
from dashboard.charts.figure import byte_ticks, note_of, top_of_axis
from dashboard.charts.rolled import rolled_figure
from dashboard.charts.sizes import sizes_figure
from dashboard.queries.rolled import RolledPoint
from dashboard.queries.series import AlignmentColumn, AlignmentGrid, CheckpointPoint, RunStart, Span
from monitoring.history.quantiles import RangeFigures
from monitoring.units import duration_text

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
SPAN = Span(NOW - timedelta(hours=1), NOW)
POINT = CheckpointPoint(7, 1, NOW, False, False, 1_000, 100, 300, 50, 500, 2_000_000, 4_000, 1)


def points(count: int, every_s: float = 10) -> list[CheckpointPoint]:
    start = NOW - timedelta(seconds=every_s * count)
    return [replace(POINT, checkpoint_id=n, triggered_at=start + timedelta(seconds=every_s * n)) for n in range(count)]


def roles(figure: dict[str, object]) -> list[str]:
    traces: Sequence[dict[str, dict[str, str]]] = figure["data"]  # type: ignore[assignment]
    return [trace["meta"]["role"] for trace in traces]


def test_the_phases_and_the_rest_add_up_to_the_end_to_end_duration() -> None:
    figure = durations_figure([POINT], [], SPAN)
    stacked = {trace["meta"]["role"]: trace["y"] for trace in figure["data"]}
    assert stacked.pop("failed") == []
    assert list(stacked.pop("hover")) == [POINT.duration]
    assert sum(height[0] for height in stacked.values()) == POINT.duration


def test_without_subtask_figures_the_whole_duration_is_still_drawn() -> None:
    bare = replace(POINT, start_delay=None, alignment=None, sync=None, asynchronous=None)
    assert unattributed(bare) == 1_000


def test_one_outlier_does_not_flatten_the_other_bars() -> None:
    drawn = points(60)
    drawn[20] = replace(drawn[20], duration=600_000)
    figure = durations_figure(drawn, [], SPAN)
    top = figure["layout"]["yaxis"]["range"][1]
    assert 1_000 <= top <= 5_000
    above = figure["data"][roles(figure).index("above")]
    assert list(above["y"]) == [top]
    assert list(above["x"]) == [figure["data"][0]["x"][20]]
    assert note_of(figure) == f"Triangles: values above the axis, up to {duration_text(600_000)}."


@pytest.mark.parametrize(
    ("values", "usual", "top"),
    [
        ([], None, 0),
        ([None, None], None, 0),
        ([1, 1, 1, 1, 1, 1, 900], None, 900),  # too few values to call one an outlier
        ([1, 1, 1, 1, 1, 1, 1, 900], None, 3),
        ([100] * 50 + [250], None, 250),  # not far above the others
        ([100] * 10 + [900] * 3, None, 900),  # no outliers, because they are many
        ([5_000] + [300] * 9, [100] * 10, 300),  # the maximum of one day is far above each p95
        ([250] * 10, [100] * 10, 250),
    ],
)
def test_an_axis_ends_at_a_multiple_of_the_usual_highest_value(
    values: list[float | None], usual: list[float | None] | None, top: float
) -> None:
    assert top_of_axis(values, usual) == top


def rolled_points(longest: Sequence[int], failed: Sequence[int]) -> list[RolledPoint]:
    day = timedelta(days=1)
    found: list[RolledPoint] = []
    for number, (maximum, failures) in enumerate(zip(longest, failed, strict=True)):
        start = NOW - day * (len(longest) - number)
        counts = {"completed": 100, "failed": failures}
        quantiles = {0.5: 50.0, 0.95: 100.0}
        result = RangeFigures(start, start + day, counts, 100, 5_000, 10, maximum, quantiles)
        found.append(RolledPoint(start, start + day, {"duration": result}))
    return found


def test_failures_of_long_ranges_are_counted() -> None:
    span = Span(NOW - timedelta(days=10), NOW)
    figure = rolled_figure("durations", rolled_points([200] * 10, [0, 3, 0, 0, 41, 0, 0, 0, 0, 0]), [], span)
    failed = figure["data"][roles(figure).index("failed")]
    assert list(failed["y"]) == [3, 41]
    assert (failed["yaxis"], figure["layout"]["yaxis2"]["ticktext"][0]) == ("y2", "41")
    assert [text.partition("<br>")[2] for text in failed["hovertext"]] == ["3 failed", "41 failed"]
    calm = rolled_figure("durations", rolled_points([200] * 10, [0] * 10), [], span)
    assert "failed" not in roles(calm)
    assert "yaxis2" not in calm["layout"]


def test_tooltips_of_long_ranges_have_the_figures_of_each_point() -> None:
    figure = rolled_figure("durations", rolled_points([200, 300], [0, 3]), [], Span(NOW - timedelta(days=2), NOW))
    texts = figure["data"][roles(figure).index("longest")]["hovertext"]
    assert [text.partition("<br>")[2] for text in texts] == [
        "100 completed, 0 failed<br>median 50 ms<br>p95 100 ms<br>average 50 ms<br>max 200 ms",
        "100 completed, 3 failed<br>median 50 ms<br>p95 100 ms<br>average 50 ms<br>max 300 ms",
    ]


def test_one_outlier_does_not_flatten_the_p95_of_long_ranges() -> None:
    span = Span(NOW - timedelta(days=10), NOW)
    figure = rolled_figure("durations", rolled_points([200] * 9 + [900_000], [0] * 10), [], span)
    assert 300 <= figure["layout"]["yaxis"]["range"][1] <= 500
    assert len(figure["data"][roles(figure).index("above")]["x"]) == 1
    assert max(figure["data"][roles(figure).index("longest")]["y"]) == 900_000
    assert note_of(figure).endswith(f"up to {duration_text(900_000)}.")


def test_failed_checkpoints_are_marked_by_more_than_colour() -> None:
    failed = replace(POINT, failed=True, duration=10_000, failure="expired")
    figure = durations_figure([POINT, failed], [], SPAN)
    broken = figure["data"][roles(figure).index("failed")]
    assert broken["y"] == [10_000]
    assert broken["marker"]["pattern"]["shape"] == "/"
    hover = figure["data"][roles(figure).index("hover")]
    assert ["expired" in text for text in hover["hovertext"]] == [False, True]


def test_failures_of_short_ranges_are_counted_too() -> None:
    at = [NOW - timedelta(seconds=s) for s in (3000, 2990, 600)]
    counts = (1, 4, 2)
    failed = [
        replace(POINT, failed=True, triggered_at=each, stands_for=count) for each, count in zip(at, counts, strict=True)
    ]
    figure = durations_figure([POINT, *failed], [], SPAN)
    bars = [trace for trace in figure["data"] if trace.get("yaxis") == "y2"]
    assert [(trace["meta"]["role"], list(trace["y"])) for trace in bars] == [("failed", [5, 2])]
    assert figure["layout"]["yaxis2"]["domain"][1] < figure["layout"]["yaxis"]["domain"][0]
    assert bars[0]["hovertext"][0].endswith("<br>5 failed")


@pytest.mark.parametrize("build", [durations_figure, alignments_figure, delays_figure, sizes_figure])
def test_each_axis_has_at_most_one_trace_with_tooltips(build: Any) -> None:
    drawn = [replace(p, start_delay_max=30, alignment_max=20) for p in points(30)]
    drawn[3], drawn[9] = replace(drawn[3], failed=True), replace(drawn[9], is_savepoint=True)
    figure = build([replace(p, run_number=1 + (n > 15)) for n, p in enumerate(drawn)], [], SPAN)
    answering = [trace.get("yaxis", "y") for trace in figure["data"] if trace.get("hoverinfo") != "skip"]
    assert sorted(answering) == sorted(set(answering))
    assert "y" in answering


def test_savepoints_are_not_clipped_at_the_top_of_the_axis() -> None:
    figure = sizes_figure([replace(p, is_savepoint=p.checkpoint_id == 5) for p in points(30)], [], SPAN)
    assert figure["data"][roles(figure).index("savepoint")]["cliponaxis"] is False


def test_tooltip_has_no_english_month_in_chinese() -> None:
    with override("zh-hans"):
        figure = durations_figure([POINT], [], SPAN)
    (result,) = figure["data"][roles(figure).index("hover")]["hovertext"]
    assert f"{POINT.triggered_at:%-m月%-d日}" in result
    assert not re.search(r"[A-Z][a-z]{2} \d", result)


def test_restarts_are_dashed_lines_that_say_what_was_restored() -> None:
    start = RunStart(2, NOW - timedelta(minutes=13), "savepoint 42")
    figure = durations_figure([POINT], [start], SPAN)
    assert figure["layout"]["shapes"][0]["line"]["dash"] == "dot"
    assert figure["layout"]["annotations"][0]["text"] == "run 2 · restored from savepoint 42"


def test_a_label_without_room_shows_only_the_run() -> None:
    starts = [RunStart(n, NOW - timedelta(minutes=ago), "savepoint 4") for n, ago in ((2, 51), (3, 42))]
    labels = durations_figure([POINT], starts, SPAN)["layout"]["annotations"]
    assert [label["text"] for label in labels] == ["run 3 · restored from savepoint 4", "run 2"]


def test_restart_labels_do_not_overlap() -> None:
    starts = [RunStart(n, NOW - timedelta(minutes=30 - n), "savepoint 4") for n in range(2, 8)]
    layout = durations_figure([POINT], starts, SPAN)["layout"]
    assert len(layout["shapes"]) == 6
    assert [label["text"].partition(" ·")[0] for label in layout["annotations"]] == ["run 7", "run 6"]
    assert [label["xanchor"] for label in layout["annotations"]] == ["left", "right"]


def test_chinese_labels_need_twice_the_room() -> None:
    start = RunStart(2, NOW - timedelta(minutes=9), "保存点 4")
    with override("zh-hans"):
        (label,) = durations_figure([POINT], [start], SPAN)["layout"]["annotations"]
    assert (label["text"], label["xanchor"]) == ("运行 2 · 恢复自保存点 4", "right")


@pytest.mark.parametrize(
    ("highest", "steps", "texts"),
    [
        (150_000, 3, ["64 KB", "128 KB", "192 KB"]),
        (1_000_000, 2, ["0.5 MB", "1 MB"]),
        (2_410_000_000, 3, ["1 GB", "2 GB", "3 GB"]),
        (1, 3, ["1 B"]),
    ],
)
def test_sizes_step_in_powers_of_two(highest: int, steps: int, texts: list[str]) -> None:
    ticks = byte_ticks(highest, steps)
    assert ticks["ticktext"] == texts
    assert ticks["range"][1] >= highest


def test_bars_never_overlap_the_next_bar() -> None:
    crowded = [*points(20), replace(POINT, checkpoint_id=99, triggered_at=NOW - timedelta(seconds=4))]
    ordered = sorted(crowded, key=lambda p: p.triggered_at)
    widths = bar_widths(ordered, SPAN)
    for left, right, width in zip(ordered, ordered[1:], widths, strict=False):
        assert width < (right.triggered_at - left.triggered_at).total_seconds() * 1000


@pytest.mark.parametrize("build", [durations_figure, sizes_figure])
@pytest.mark.parametrize("count", [0, 1, 360])
def test_figures_are_plain_json_for_none_one_and_many(build: object, count: int) -> None:
    figure = build(points(count), [], SPAN)  # type: ignore[operator]
    assert len(json.dumps(figure)) < 400_000
    assert all(len(trace["x"]) <= 2_000 for trace in figure["data"])


def test_sizes_keep_written_bytes_off_the_axis_of_the_full_size() -> None:
    figure = sizes_figure(points(5), [], SPAN)
    axes = {trace["meta"]["role"]: trace.get("yaxis", "y") for trace in figure["data"]}
    assert axes["written"] != axes["state"]


@pytest.mark.parametrize(
    ("alignment", "step"), [(None, None), (0, 0), (19, 0), (20, 1), (499, 2), (1_999, 3), (2_000, 4), (9_000_000, 4)]
)
def test_an_alignment_has_a_step_of_the_legend(alignment: int | None, step: int | None) -> None:
    assert step_of(alignment) == step
    assert step is None or 0 <= step <= len(STEPS)


def test_the_heat_map_has_a_row_per_subtask_and_gaps_for_missing_values() -> None:
    grid = AlignmentGrid([AlignmentColumn(7, NOW)], [("aggregate", 0), ("aggregate", 1)], [[5], [None]])
    trace = alignment_figure(grid, SPAN)["data"][0]
    assert trace["z"] == [[0], [None]]
    assert alignment_figure(grid, SPAN)["layout"]["yaxis"]["ticktext"] == ["aggregate · 0", "aggregate · 1"]


@pytest.mark.parametrize(("count", "labels", "height"), [(1, 1, 5), (8, 8, 8), (40, 10, 40)])
def test_rows_of_the_heat_map_share_a_fixed_height(count: int, labels: int, height: int) -> None:
    rows = [("aggregate by aircraft and route", n) for n in range(count)]
    axis = alignment_figure(AlignmentGrid([AlignmentColumn(7, NOW)], rows, [[5]] * count), SPAN)["layout"]["yaxis"]
    assert axis["range"] == [height - 0.5, -0.5]
    assert len(axis["ticktext"]) == labels
    assert max(map(len, axis["ticktext"])) <= 20


def test_heat_map_shares_the_time_axis_and_has_no_gaps() -> None:
    columns = [AlignmentColumn(n, NOW - timedelta(minutes=m)) for n, m in ((1, 50), (2, 10), (3, 9))]
    figure = alignment_figure(AlignmentGrid(columns, [("aggregate", 0)], [[5, 50, 5_000]]), SPAN)
    trace = figure["data"][0]
    assert trace["z"] == [[0, None, 1, None, 4]]
    assert len(trace["x"]) == 6
    assert trace["x"] == sorted(trace["x"])
    assert figure["layout"]["xaxis"]["range"] == durations_figure([POINT], [], SPAN)["layout"]["xaxis"]["range"]
    assert figure["layout"]["dragmode"] == "zoom"
