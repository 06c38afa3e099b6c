"""The figure of the overview: three lanes with one time axis."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboard.charts.alignment import alignment_figure
from dashboard.charts.durations import durations_figure
from dashboard.charts.lanes import lanes_figure
from dashboard.charts.sizes import sizes_figure
from dashboard.queries.series import AlignmentColumn, AlignmentGrid, CheckpointPoint, Gap, RunStart, Span

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
SPAN = Span(NOW - timedelta(hours=1), NOW)
POINT = CheckpointPoint(7, 1, NOW, False, False, 1_000, 100, 300, 50, 500, 2_000_000, 4_000, 1)
CSS = Path(__file__).parents[3] / "dashboard" / "static" / "dashboard" / "css" / "waymark.css"


def points(count: int = 12) -> list[CheckpointPoint]:
    """Return points, of which one failed."""
    at = [NOW - timedelta(minutes=5 * (count - n)) for n in range(count)]
    return [replace(POINT, checkpoint_id=n, triggered_at=each, failed=n == 3, pk=n) for n, each in enumerate(at)]


def grid(subtasks: int, name: str = "aggregate") -> AlignmentGrid:
    return AlignmentGrid([AlignmentColumn(7, NOW)], [(name, n) for n in range(subtasks)], [[5]] * subtasks)


def figure(
    drawn: list[CheckpointPoint] | None = None, waits: AlignmentGrid | None = None, **marks: Any
) -> dict[str, Any]:
    drawn = points() if drawn is None else drawn
    lanes = [
        durations_figure(drawn, [], SPAN),
        alignment_figure(grid(4) if waits is None else waits, SPAN),
        sizes_figure(drawn, [], SPAN),
    ]
    return lanes_figure(lanes, marks.pop("starts", []), SPAN, **marks)


def axes(drawn: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the vertical axes with their places, by the name that traces use."""
    layout = drawn["layout"]
    places = {name.replace("axis", ""): layout[name]["domain"] for name in layout if name.startswith("yaxis")}
    return {name: (bottom, top) for name, (bottom, top) in places.items()}


def test_lanes_are_above_each_other_and_have_one_time_axis() -> None:
    drawn = figure()
    places = sorted(axes(drawn).values(), reverse=True)
    assert len(places) == 5  # durations, failures, alignment, full size, written
    assert places[0][1] == 1
    assert places[-1][0] == 0
    assert all(above[0] > below[1] for above, below in pairwise(places))
    assert [name for name in drawn["layout"] if name.startswith("xaxis")] == ["xaxis"]
    assert {trace.get("xaxis", "x") for trace in drawn["data"]} == {"x"}
    assert {trace["yaxis"] for trace in drawn["data"]} == set(axes(drawn))


def test_the_roles_of_traces_are_in_the_order_of_the_lanes() -> None:
    drawn = figure()
    place = {name: position for position, name in enumerate(axes(drawn))}
    lane = {trace["meta"]["role"]: place[trace["yaxis"]] for trace in drawn["data"]}
    assert [lane[role] for role in ("rest", "failed", "steps", "state", "written")] == [0, 1, 2, 3, 4]


def test_the_ends_of_lanes_do_not_depend_on_their_labels() -> None:
    small = figure()
    large = figure([replace(p, duration=600_000, state_size=2**40) for p in points()], grid(40, "a long name " * 9))
    for drawn in (small, large):
        assert [drawn["layout"][name.replace("y", "yaxis")]["automargin"] for name in axes(drawn)] == [False] * 5
    assert small["layout"]["margin"] == large["layout"]["margin"]
    assert small["layout"]["xaxis"]["range"] == large["layout"]["xaxis"]["range"]


def test_marks_cross_all_lanes() -> None:
    starts = [RunStart(2, NOW - timedelta(minutes=13), "savepoint 42")]
    gaps = [Gap(NOW - timedelta(minutes=30), NOW - timedelta(minutes=20), 4, 9)]
    shapes = figure(starts=starts, gaps=gaps)["layout"]["shapes"]
    assert [(shape["yref"], shape["y0"], shape["y1"]) for shape in shapes] == [("paper", 0, 1)] * 2


def test_a_lane_without_figures_has_a_text() -> None:
    drawn = figure(waits=grid(0), missing=("", "No subtask data.", ""))
    (text,) = drawn["layout"]["annotations"]
    assert (text["name"], text["text"]) == ("lane", "No subtask data.")
    place = axes(drawn)["y3"]
    assert place[0] < text["y"] < place[1]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_plotly_accepts_the_figure(count: int) -> None:
    go.Figure(figure(points(count), grid(count // 10), missing=("", "", "nothing")))


def test_the_page_has_the_heights_of_the_lanes() -> None:
    drawn, css = figure([p for p in points() if not p.failed]), CSS.read_text()
    margin = drawn["layout"]["margin"]
    (height,) = re.findall(r"^\.lanes > \.chart \{ height: (\d+)px", css, re.MULTILINE)
    tops = [0, *map(int, re.findall(r"\.lane-title:nth-child\(\d\) \{ top: (\d+)px", css))]
    (heading,) = re.findall(r"^\.lane-title \{[^}]* height: (\d+)px", css, re.MULTILINE)
    area = int(height) - margin["t"] - margin["b"]
    begins = [margin["t"] + area * (1 - axes(drawn)[name][1]) for name in ("y", "y2", "y3")]
    labels = margin["t"] - int(heading)  # of runs, above the first lane
    assert begins == pytest.approx([tops[0] + int(heading) + labels, *(top + int(heading) for top in tops[1:])])
