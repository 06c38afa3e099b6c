"""Common parts of all charts: the layout, the marks of restarts and gaps, and the ticks of an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from math import ceil, log2
from typing import Any
from unicodedata import east_asian_width

import plotly.graph_objects as go
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.queries.changes import JobChange
from dashboard.queries.series import CheckpointPoint, Gap, RunStart, Span
from monitoring.units import SHORT_DATE_AND_CLOCK, round_bytes_texts, span_ms_texts, time_text

_LETTER = 1 / 150  # width of a letter as a share of the chart on a small laptop; phones show only the newest label
_FLAGS_APART = 100  # flags within this share of the time range become one
_FLAG_LINES, _FLAG_WIDTH = 6, 110
_ENOUGH = 8  # an axis with fewer values shows all of them
_FAR = 3  # an axis ends at this multiple of the usual highest value
_DURATION_STEPS = [
    *(m * 10**e for e in range(3) for m in (1, 2, 5)),
    *(s * 1000 for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)),
]


def layout(**extra: Any) -> dict[str, Any]:
    return {
        "margin": {"l": 4, "r": 4, "t": 26, "b": 24},
        "showlegend": False,
        "hovermode": "x",
        "hoverdistance": 10_000,  # the pointer selects the nearest point at any distance, a bar only within its width
        "dragmode": "zoom",
        "bargap": 0,
        "xaxis": {"showgrid": False, "zeroline": False, "automargin": True},
        "yaxis": {
            "fixedrange": True,
            "zeroline": False,
            "side": "right",
            "rangemode": "tozero",
            "automargin": True,
            "ticklabelposition": "outside right",
        },
        **extra,
    }


def as_dict(traces: Sequence[Any], shape: dict[str, Any]) -> dict[str, Any]:
    """Validate a figure with Plotly and return it as lists and dictionaries."""
    figure: dict[str, Any] = go.Figure(data=list(traces), layout=shape).to_plotly_json()
    figure["layout"].pop("template", None)
    return figure


def time_axis(span: Span) -> dict[str, Any]:
    """Return the time axis, slightly extended to the left, because the first bar is centred on its time."""
    begin = span.start - (span.end - span.start) / 80
    return {"type": "date", "range": [moment(begin), moment(span.end)], "nticks": 8}


def duration_ticks(highest_ms: float) -> dict[str, Any]:
    """Return about four round ticks in one unit for an axis in milliseconds."""
    step = next((s for s in _DURATION_STEPS if highest_ms / s <= 5.2), _DURATION_STEPS[-1])
    return _ticks(highest_ms, step, span_ms_texts)


def byte_ticks(highest: float, steps: int) -> dict[str, Any]:
    """Return at most `steps` ticks with a power of two between them, such as 128 KB, 256 KB, 384 KB."""
    step = 2 ** max(0, ceil(log2(max(highest, 1) / steps)))
    return _ticks(highest, step, round_bytes_texts)


def _ticks(highest: float, step: float, texts: Callable[[Sequence[float]], list[str]]) -> dict[str, Any]:
    values = [step * n for n in range(1, max(1, ceil(highest / step)) + 1)][:8]
    return {"tickmode": "array", "tickvals": values, "ticktext": texts(values), "range": [0, values[-1]]}


def hover_points(points: Sequence[CheckpointPoint], heights: Sequence[float], texts: Sequence[str]) -> Any:
    """Return an invisible trace with the hover text and the key of each checkpoint, which the page links.

    It is the only trace of its axis that answers to the pointer, so that a text never joins two checkpoints.
    """
    return go.Scatter(
        meta={"role": "hover"},
        x=[moment(p.triggered_at) for p in points],
        y=list(heights),
        mode="markers",
        marker={"opacity": 0},
        customdata=[p.pk for p in points],
        hovertext=list(texts),
        hoverinfo="text",
    )


def failure_bars(counted: Sequence[tuple[datetime, datetime, int]], shape: dict[str, Any], span: Span) -> list[Any]:
    """Return bars with the number of failed checkpoints of each time range, or no trace without failures.

    The bars are in a lane of their own at the bottom of the chart: `shape` is changed to have it.
    """
    some = [each for each in counted if each[2]]
    if not some:
        return []
    most = max(count for *_range, count in some)
    ticks = {"tickmode": "array", "tickvals": [most], "ticktext": [f"{most:,}"], "range": [0, most * 1.1]}
    shape["xaxis"] |= {"anchor": "y2"}
    shape["yaxis2"] = shape["yaxis"] | {"domain": [0, 0.2]} | ticks
    shape["yaxis"] |= {"domain": [0.28, 1]}
    least = (span.end - span.start) / 300  # the least visible width of a flag
    return [
        go.Bar(
            meta={"role": "failed"},
            x=[moment(start + (end - start) / 2) for start, end, _count in some],
            y=[count for *_range, count in some],
            width=[max((end - start) * 0.84, least) / timedelta(milliseconds=1) for start, end, _count in some],
            marker={"line": {"width": 0}},
            hovertext=[
                f"{clock_of(start)} – {clock_of(end)}<br>" + _("%(failed)s failed") % {"failed": f"{count:,}"}
                for start, end, count in some
            ],
            hoverinfo="text",
            yaxis="y2",
        )
    ]


def top_of_axis(values: Sequence[float | None], usual: Sequence[float | None] | None = None) -> float:
    """Return the highest value that an axis shows, so that a few outliers do not flatten the other values.

    `usual` has the values that must stay readable, by default all. The highest 2 % of them, at least one, may be
    outliers.
    """
    highest = max((value for value in values if value), default=0)
    known = sorted(value for value in (values if usual is None else usual) if value)
    return min(highest, _FAR * known[-1 - max(1, len(known) // 50)]) if len(known) >= _ENOUGH else highest


def above_axis(
    points: Sequence[tuple[datetime, float | None]], axis: dict[str, Any], text: Callable[[float | None], str]
) -> list[Any]:
    """Return a trace of triangles at the top of the axis for values above it, or no trace. Its note says so."""
    top = axis["range"][1]
    above = [(at, value) for at, value in points if value is not None and value > top]
    if not above:
        return []
    note = _("Triangles: values above the axis, up to %(highest)s.") % {"highest": text(max(v for _at, v in above))}
    return [
        go.Scatter(
            meta={"role": "above", "note": note},
            x=[moment(at) for at, _value in above],
            y=[top] * len(above),
            mode="markers",
            marker={"symbol": "triangle-up", "size": 9},
            cliponaxis=False,
            hoverinfo="skip",
        )
    ]


def note_of(figure: dict[str, Any]) -> str:
    """Return the note about values above the axis, or an empty text."""
    return next((trace["meta"]["note"] for trace in figure["data"] if trace["meta"].get("note")), "")


def add_flags(figure: dict[str, Any], changes: Sequence[tuple[JobChange, str]], span: Span) -> None:
    """Add a flag at the top of a figure for each change, and one flag for changes that are close together.

    A change comes with the URL of its comparison. The page opens the URL that `comparisons` has for the time of a flag.
    """
    groups = {moment(group[0][0].at): group for group in _close_together(changes, span)}
    flags = [_flag(at, [change for change, _url in group]) for at, group in groups.items()]
    shape = figure["layout"]
    shape["annotations"] = [*shape.get("annotations", ()), *flags]
    shape["meta"] = {"comparisons": {at: group[0][1] for at, group in groups.items()}}


def _flag(at: str, changes: Sequence[JobChange]) -> dict[str, Any]:
    """Return the flag of changes. It answers only to a pointer on it. The page takes the colour from `name`."""
    place = {"x": at, "xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "showarrow": False}
    return {"name": "change", "text": "▼", "hovertext": _flag_text(changes), **place}


def _close_together(changes: Sequence[tuple[JobChange, str]], span: Span) -> Iterator[list[tuple[JobChange, str]]]:
    """Yield groups of changes, oldest first, whose flags would cover each other."""
    group: list[tuple[JobChange, str]] = []
    for each in sorted(changes, key=lambda each: each[0].at):
        if group and each[0].at - group[0][0].at > (span.end - span.start) / _FLAGS_APART:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _flag_text(changes: Sequence[JobChange]) -> str:
    shown = [(clock_of(change.at), escape(_cut(change.sentence), quote=False)) for change in changes[:_FLAG_LINES]]
    lines = [f"{at} · {sentence}" for at, sentence in shown]
    if len(changes) > _FLAG_LINES:
        lines.append(_("and %(count)s more") % {"count": len(changes) - _FLAG_LINES})
    return "<br>".join([*lines, _("Click: compare the time before and after")])


def _cut(text: str) -> str:
    return text if len(text) <= _FLAG_WIDTH else f"{text[: _FLAG_WIDTH - 1]}…"


def marks(starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """Return a dotted line with a label for each start of a run, and a band for each gap of unseen checkpoints."""
    return {
        "shapes": [*(_band(gap, span) for gap in gaps), *(_line(start) for start in starts)],
        "annotations": _labels(starts, span),
    }


def _line(start: RunStart) -> dict[str, Any]:
    at, dots = moment(start.at), {"dash": "dot", "width": 1.5}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": dots}


def _band(gap: Gap, span: Span) -> dict[str, Any]:
    """Return the band of a gap, wide enough to be visible. The page takes the colour from `name`."""
    end = max(gap.end, gap.start + (span.end - span.start) / 300)
    return {
        "name": "gap",
        "type": "rect",
        "layer": "below",
        "xref": "x",
        "yref": "paper",
        "x0": moment(gap.start),
        "x1": moment(end),
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
    }


def _labels(starts: Sequence[RunStart], span: Span) -> list[dict[str, Any]]:
    """Return the labels of lines, placed from the newest on. A label without room is shortened or omitted."""
    labels: list[dict[str, Any]] = []
    taken: list[tuple[float, float]] = []
    for start in reversed(starts):
        at = (start.at - span.start) / (span.end - span.start)
        for text, anchor, left, right in _places(at, (start.label, start.name)):
            if left >= 0 and right <= 1 and all(right < begin or left > end for begin, end in taken):
                taken.append((left, right))
                labels.append(_label(start, text, anchor))
                break
    return labels


def _places(at: float, texts: Sequence[str]) -> Iterator[tuple[str, str, float, float]]:
    for text in texts:
        # Chinese characters are twice as wide.
        width = sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text) * _LETTER
        yield text, "left", at, at + width
        yield text, "right", at - width, at


def _label(start: RunStart, text: str, anchor: str) -> dict[str, Any]:
    return {
        "x": moment(start.at),
        "xref": "x",
        "xanchor": anchor,
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": text,
    }


def moment(at: datetime) -> str:
    """Return the time in the reader's time zone, without the zone, because Plotly does not convert time zones."""
    return timezone.localtime(at).replace(tzinfo=None).isoformat()


def clock_of(at: datetime) -> str:
    return time_text(timezone.localtime(at), SHORT_DATE_AND_CLOCK)


def title_of(point: CheckpointPoint) -> str:
    """Return the first line of a point's hover text."""
    kind = _("savepoint") if point.is_savepoint else _("checkpoint")
    run = _("run %(number)s") % {"number": point.run_number}
    return f"{kind} {point.checkpoint_id} · {run} · {clock_of(point.triggered_at)}"
