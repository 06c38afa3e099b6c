"""The charts of sizes: full state, data that each checkpoint writes, and in-flight data during alignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.durations import bar_widths
from dashboard.charts.figure import as_dict, byte_ticks, layout, marks, moment, time_axis, title_of
from dashboard.queries.series import CheckpointPoint, Gap, RunStart, Span
from monitoring.units import bytes_text


def sizes_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return a figure with the full size and savepoints above, and the checkpointed sizes below.

    With incremental checkpoints the sizes can differ by a factor of 1,000, so each part has its axis.
    """
    done = [p for p in points if not p.failed]
    checkpoints = [p for p in done if not p.is_savepoint]
    savepoints = [p for p in done if p.is_savepoint]
    widths = dict(zip(done, bar_widths(done, span), strict=True))
    traces = [
        go.Scatter(
            meta={"role": "state"},
            x=[moment(p.triggered_at) for p in checkpoints],
            y=[p.state_size for p in checkpoints],
            mode="lines" if len(checkpoints) > 1 else "markers",
            line={"width": 2},
            customdata=[p.pk for p in checkpoints],
            hovertext=[_tooltip(p) for p in checkpoints],
            hoverinfo="text",
        ),
        go.Scatter(
            meta={"role": "savepoint"},
            x=[moment(p.triggered_at) for p in savepoints],
            y=[p.checkpointed_size for p in savepoints],
            mode="markers",
            marker={"symbol": "diamond", "size": 9},
            customdata=[p.pk for p in savepoints],
            hovertext=[_tooltip(p) for p in savepoints],
            hoverinfo="text",
        ),
        go.Bar(
            meta={"role": "written"},
            x=[moment(p.triggered_at) for p in checkpoints],
            y=[p.checkpointed_size for p in checkpoints],
            width=[widths[p] for p in checkpoints],
            marker={"line": {"width": 0}},
            customdata=[p.pk for p in checkpoints],
            hovertext=[_tooltip(p) for p in checkpoints],
            hoverinfo="text",
            yaxis="y2",
        ),
    ]
    shape = layout(**marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span) | {"anchor": "y2"}
    shape["yaxis2"] = shape["yaxis"] | {"domain": [0, 0.36]} | byte_ticks(_highest(checkpoints, "checkpointed_size"), 2)
    full = max(_highest(checkpoints, "state_size"), _highest(savepoints, "checkpointed_size"))
    shape["yaxis"] |= {"domain": [0.48, 1]} | byte_ticks(full, 3)
    return as_dict(traces, shape)


def _highest(points: Sequence[CheckpointPoint], name: str) -> int:
    return max((getattr(p, name) or 0 for p in points), default=0) or 1024


def _tooltip(point: CheckpointPoint) -> str:
    return "<br>".join(
        [
            title_of(point),
            f"{_('full size')} {bytes_text(point.state_size)}",
            f"{_('written')} {bytes_text(point.checkpointed_size)}",
        ]
    )


def in_flight_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return bars of the data that was processed during alignment, and within them bars of the persisted data."""
    done = [p for p in points if not p.failed]
    widths = bar_widths(done, span)
    traces = [
        go.Bar(
            meta={"role": role},
            x=[moment(p.triggered_at) for p in done],
            y=[getattr(p, name) or 0 for p in done],
            width=widths,
            marker={"line": {"width": 0}},
            customdata=[p.pk for p in done],
            hovertext=[_in_flight_tooltip(p) for p in done],
            hoverinfo="text" if name == "processed" else "skip",
        )
        for role, name in (("written", "processed"), ("alignment", "persisted"))
    ]
    shape = layout(barmode="overlay", **marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    highest = max((max(p.processed or 0, p.persisted or 0) for p in done), default=0)
    shape["yaxis"] |= byte_ticks(highest or 1024, 3)
    return as_dict(traces, shape)


def has_in_flight_data(points: Sequence[CheckpointPoint]) -> bool:
    return any(p.processed or p.persisted for p in points)


def _in_flight_tooltip(point: CheckpointPoint) -> str:
    lines = [
        title_of(point),
        f"{_('processed')} {bytes_text(point.processed)}",
        f"{_('persisted')} {bytes_text(point.persisted)}",
    ]
    return "<br>".join(lines)
