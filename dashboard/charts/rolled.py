"""Charts of long time ranges from roll-ups: median, p95 and maximum of each hour or day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.figure import (
    above_axis,
    as_dict,
    byte_ticks,
    clock_of,
    duration_ticks,
    failure_bars,
    layout,
    marks,
    moment,
    time_axis,
    top_of_axis,
)
from dashboard.queries.rolled import RolledPoint
from dashboard.queries.series import Gap, RunStart, Span
from monitoring.history.quantiles import RangeFigures
from monitoring.units import bytes_text, duration_text

# The figures of roll-ups in each chart, the one that is drawn largest first.
FIGURES = {
    "durations": ("duration",),
    "sizes": ("state_size", "checkpointed_size"),
    "moved": ("processed",),
    "alignments": ("alignment",),
    "delays": ("start_delay",),
}
_IN_BYTES = ("sizes", "moved")


def rolled_figure(
    name: str, points: Sequence[RolledPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return the figure of the chart `name`, a key of FIGURES."""
    shape = layout(**marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    if name == "sizes":
        return _sizes(points, shape)
    figure, text = FIGURES[name][0], bytes_text if name in _IN_BYTES else duration_text
    traces = [
        _line("longest", points, [each.figures[figure].maximum for each in points], 1),
        _line("p95", points, [each.figures[figure].quantiles[0.95] for each in points], 2),
        _line("median", points, [each.figures[figure].quantiles[0.5] for each in points], 2),
    ]
    traces[0].hovertext, traces[0].hoverinfo = _tooltips(points, _headings(points), figure, text), "text"
    longest, p95 = [each.figures[figure].maximum for each in points], [each.figures[figure].p95 for each in points]
    highest = top_of_axis(longest, p95)
    shape["yaxis"] |= byte_ticks(highest or 1024, 3) if name in _IN_BYTES else duration_ticks(max(highest, 10))
    middles = [_middle(each) for each in points]
    traces += above_axis(list(zip(middles, longest, strict=True)), shape["yaxis"], text)
    if name == "durations":
        traces += failure_bars([(each.start, each.end, each.count("failed")) for each in points], shape, span)
    return as_dict(traces, shape)


def has_figures(name: str, points: Sequence[RolledPoint]) -> bool:
    """Return whether the chart has anything to draw."""
    known = [each.figures[FIGURES[name][0]] for each in points]
    return any((each.maximum or 0) > 0 if name == "moved" else each.known or each.counts["failed"] for each in known)


def _sizes(points: Sequence[RolledPoint], shape: dict[str, Any]) -> dict[str, Any]:
    """Return a figure with the median of the full size above, and the average checkpointed size below."""
    full = [each.figures["state_size"].quantiles[0.5] for each in points]
    written = [each.figures["checkpointed_size"].mean for each in points]
    below = _line("written", points, written, 2)
    below.yaxis = "y2"
    above = _line("state", points, full, 2)
    headings = _headings(points)
    for trace, figure in ((above, "state_size"), (below, "checkpointed_size")):
        trace.hovertext, trace.hoverinfo = _tooltips(points, headings, figure, bytes_text), "text"
    shape["xaxis"] |= {"anchor": "y2"}
    shape["yaxis2"] = shape["yaxis"] | {"domain": [0, 0.36]} | byte_ticks(max([1, *(w or 0 for w in written)]), 2)
    shape["yaxis"] |= {"domain": [0.48, 1]} | byte_ticks(max([1, *(f or 0 for f in full)]), 3)
    return as_dict([above, below], shape)


def _line(role: str, points: Sequence[RolledPoint], values: Sequence[float | None], width: int) -> Any:
    return go.Scatter(
        meta={"role": role},
        x=[moment(_middle(each)) for each in points],
        y=list(values),
        mode="lines" if len(points) > 1 else "markers",
        line={"width": width},
        hoverinfo="skip",
    )


def _middle(point: RolledPoint) -> datetime:
    return point.start + (point.end - point.start) / 2


def _headings(points: Sequence[RolledPoint]) -> list[str]:
    """Return the first lines of each point's tooltip."""
    clock = cache(clock_of)  # most points begin where another ends
    counted = _("%(completed)s completed, %(failed)s failed")
    return [
        f"{clock(each.start)} – {clock(each.end)}<br>"
        + counted % {"completed": f"{each.count('completed'):,}", "failed": f"{each.count('failed'):,}"}
        for each in points
    ]


def _tooltips(
    points: Sequence[RolledPoint], headings: Sequence[str], figure: str, text: Callable[[float | None], str]
) -> list[str]:
    """Return the tooltip of each point. Their words are translated once, because a chart has thousands of tooltips."""
    median, average, longest = _("median"), _("average"), _("max")

    def lines(of: RangeFigures) -> Iterator[str]:
        if of.known:
            yield f"{median} {text(of.median)}"
            yield f"p95 {text(of.p95)}"
            yield f"{average} {text(of.mean)}"
            yield f"{longest} {text(of.maximum)}"

    return [
        "<br>".join((heading, *lines(each.figures[figure]))) for each, heading in zip(points, headings, strict=True)
    ]
