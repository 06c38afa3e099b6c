"""The chart of a backtest: it shows when a rule would have opened and closed incidents."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.figure import as_dict, byte_ticks, clock_of, duration_ticks, layout, moment, time_axis
from dashboard.queries.series import Span
from monitoring.alerts.backtest import OpenPeriod, Point, Replay
from monitoring.alerts.kinds.base import Unit

_TO_MS = {Unit.SECONDS: 1000, Unit.MILLISECONDS: 1}


def backtest_figure(replay: Replay, unit: Unit) -> dict[str, Any]:
    """Return the value as a line, the limit as a dashed line, and a band for each incident."""
    scale = _TO_MS.get(unit, 1)
    points = replay.points
    traces = [
        go.Scatter(
            meta={"role": "state"},
            x=[moment(point.at) for point in points],
            y=[None if point.value is None else point.value * scale for point in points],
            mode="lines",
            line={"width": 2, "shape": "hv" if unit in (Unit.COUNT, Unit.BYTES, Unit.PERCENT) else "linear"},
            hovertext=[_tooltip(point, unit) for point in points],
            hoverinfo="text",
        ),
        go.Scatter(
            meta={"role": "limit"},
            x=[moment(point.at) for point in points],
            y=[None if point.limit is None else point.limit * scale for point in points],
            mode="lines",
            line={"width": 1.5, "dash": "dash", "shape": "hv"},
            hoverinfo="skip",
        ),
    ]
    shape = layout(dragmode=False, shapes=[_band(incident, replay) for incident in replay.incidents])
    # On a phone, the chart is only 96 px high. This leaves room for both lines of the time axis.
    shape |= {"margin": shape["margin"] | {"t": 8}, "minreducedheight": 40}
    shape["xaxis"] |= time_axis(Span(replay.since, replay.until)) | {"fixedrange": True}
    shape["yaxis"] |= _ticks(_highest(points) * scale, unit)
    return as_dict(traces, shape)


def _band(incident: OpenPeriod, replay: Replay) -> dict[str, Any]:
    """Return the band of an incident, wide enough to be visible. The page takes the colour from `name`."""
    least = (replay.until - replay.since) / 400
    end = min(max(incident.closed_at or replay.until, incident.opened_at + least), replay.until)
    return {
        "name": "incident",
        "type": "rect",
        "layer": "below",
        "xref": "x",
        "yref": "paper",
        "x0": moment(incident.opened_at),
        "x1": moment(end),
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
    }


def _highest(points: list[Point]) -> float:
    return max((max(point.value or 0, point.limit or 0) for point in points), default=0) * 1.05


def _ticks(highest: float, unit: Unit) -> dict[str, Any]:
    match unit:
        case Unit.SECONDS | Unit.MILLISECONDS:
            return duration_ticks(max(highest, 10))
        case Unit.BYTES:
            return byte_ticks(max(highest, 1024), 3)
        case Unit.COUNT | Unit.PERCENT:
            whole = {"tickformat": "d", "nticks": 5} if highest > 5 else {"dtick": 1, "tickformat": "d"}
            return whole | {"range": [0, max(highest, 1)]}


def _tooltip(point: Point, unit: Unit) -> str:
    value = _("nothing known") if point.value is None else unit.text(point.value)
    limit = _("no limit") if point.limit is None else _("opens at %(limit)s") % {"limit": unit.text(point.limit)}
    return f"{clock_of(point.at)}<br>{value}<br>{limit}"
