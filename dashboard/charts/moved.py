"""How much data was on its way while each checkpoint was taken, and how much of it had to be stored?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.durations import bar_widths
from dashboard.charts.figure import as_dict, byte_ticks, layout, marks, moment, time_axis, title_of
from dashboard.queries.series import CheckpointPoint, Gap, RunStart, Span
from dashboard.units import bytes_text


def moved_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Upwards what was processed during alignment, and within it what was persisted with an unaligned checkpoint."""
    done = [p for p in points if not p.failed]
    widths = bar_widths(done, span)
    traces = [
        go.Bar(
            meta={"role": role},
            x=[moment(p.triggered_at) for p in done],
            y=[getattr(p, name) or 0 for p in done],
            width=widths,
            marker={"line": {"width": 0}},
            hovertext=[_story(p) for p in done],
            hoverinfo="text" if name == "processed" else "skip",
        )
        for role, name in (("written", "processed"), ("alignment", "persisted"))
    ]
    shape = layout(barmode="overlay", **marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    highest = max((max(p.processed or 0, p.persisted or 0) for p in done), default=0)
    shape["yaxis"] |= byte_ticks(highest or 1024, 3)
    return as_dict(traces, shape)


def has_moved(points: Sequence[CheckpointPoint]) -> bool:
    return any(p.processed or p.persisted for p in points)


def _story(point: CheckpointPoint) -> str:
    lines = [
        title_of(point),
        f"{_('processed')} {bytes_text(point.processed)}",
        f"{_('persisted')} {bytes_text(point.persisted)}",
    ]
    return "<br>".join(lines)
