"""Common parts of all charts: the layout, the marks of restarts and gaps, and the ticks of an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import ceil, log2
from typing import Any

import plotly.graph_objects as go
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.queries.series import CheckpointPoint, Gap, RunStart, Span
from monitoring.units import SHORT_DATE_AND_CLOCK, round_bytes_text, span_ms_text, time_text

_LETTER = 1 / 150  # width of a letter as a share of the chart on a small laptop; phones show only the newest label
_ENOUGH = 8  # with fewer values, an axis shows all of them
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
    """Return about four round ticks for an axis in milliseconds."""
    step = next((s for s in _DURATION_STEPS if highest_ms / s <= 5.2), _DURATION_STEPS[-1])
    return _ticks(highest_ms, step, span_ms_text)


def byte_ticks(highest: float, steps: int) -> dict[str, Any]:
    """Return at most `steps` ticks with a power of two between them, such as 128 KB, 256 KB, 384 KB."""
    step = 2 ** max(0, ceil(log2(max(highest, 1) / steps)))
    return _ticks(highest, step, round_bytes_text)


def _ticks(highest: float, step: float, text: Callable[[float], str]) -> dict[str, Any]:
    values = [step * n for n in range(1, max(1, ceil(highest / step)) + 1)][:8]
    return {"tickmode": "array", "tickvals": values, "ticktext": [text(v) for v in values], "range": [0, values[-1]]}


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
        width = len(text) * _LETTER
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
