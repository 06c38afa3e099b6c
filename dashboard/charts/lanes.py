"""The figure of a job's overview: lanes with one time axis, for durations, alignment and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dashboard.charts.figure import layout, marks, time_axis
from dashboard.queries.series import Gap, RunStart, Span

# Heights in pixels. static/dashboard/css/waymark.css has the same numbers: the heading of a lane is above it.
_LANES = (160, 120, 90)
_HEADING = 44
_MARGIN = {"l": 4, "r": 132, "t": 60, "b": 24}  # the labels of runs are between the first heading and its lane


def lanes_figure(
    figures: Sequence[dict[str, Any]],
    starts: Sequence[RunStart],
    span: Span,
    gaps: Sequence[Gap] = (),
    missing: Sequence[str] = ("", "", ""),
) -> dict[str, Any]:
    """Return a figure whose lanes are the given figures, which have at most two vertical axes each.

    Its margins do not depend on the labels, so a time is at the same place in all lanes. The marks of restarts and gaps
    cross all lanes. `missing` has for each lane the text that it shows if it has nothing to draw, or "".
    """
    shape = layout(barmode="stack", **marks(starts, span, gaps))
    shape["margin"] = _MARGIN
    del shape["yaxis"]
    traces: list[dict[str, Any]] = []
    axes = 0
    for figure, (bottom, top), text in zip(figures, _domains(), missing, strict=True):
        names: dict[str, str] = {}
        for own in ("yaxis", "yaxis2"):
            if own not in figure["layout"]:
                continue
            axes += 1
            name = _numbered("yaxis", axes)
            axis = figure["layout"][own]
            low, high = axis.get("domain", (0, 1))
            place = [bottom + (top - bottom) * low, bottom + (top - bottom) * high]
            shape[name] = axis | {"domain": place, "automargin": False, "anchor": "x"}
            names[own.replace("axis", "")] = name.replace("axis", "")
        traces += [trace | {"yaxis": names[trace.get("yaxis", "y")]} for trace in figure["data"]]
        if text:
            shape["annotations"] = [*shape["annotations"], _text(text, (bottom + top) / 2)]
    shape["xaxis"] |= time_axis(span) | {"anchor": "free", "position": 0, "automargin": False}
    return {"data": traces, "layout": shape}


def _domains() -> Iterator[tuple[float, float]]:
    """Return bottom and top of each lane as shares of the drawing."""
    height = sum(_LANES) + _HEADING * (len(_LANES) - 1)
    top = height
    for lane in _LANES:
        yield (top - lane) / height, top / height
        top -= lane + _HEADING


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"


def _text(text: str, y: float) -> dict[str, Any]:
    """Return a text in the middle of a lane. The page keeps it as it is, because of its `name`."""
    return {"name": "lane", "text": text, "x": 0.5, "xref": "paper", "y": y, "yref": "paper", "showarrow": False}
