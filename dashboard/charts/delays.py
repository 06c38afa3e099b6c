"""How long did the barrier take to reach the last subtask?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.figure import as_dict, duration_ticks, layout, marks, moment, time_axis, title_of
from dashboard.queries.series import CheckpointPoint, Gap, RunStart, Span
from dashboard.units import duration_text


def delays_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Of each checkpoint the longest start delay of its subtasks: what back-pressure shows in first. The line breaks
    where a run ended."""
    told = [p for p in points if p.start_delay_max is not None]
    lines = [
        go.Scatter(
            meta={"role": "start"},
            x=[moment(p.triggered_at) for p in told if p.run_number == run],
            y=[p.start_delay_max for p in told if p.run_number == run],
            mode="lines+markers" if len(told) <= 60 else "lines",
            line={"width": 2},
            marker={"size": 5},
            hovertext=[_story(p) for p in told if p.run_number == run],
            hoverinfo="text",
        )
        for run in sorted({p.run_number for p in told})
    ]
    shape = layout(**marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    shape["yaxis"] |= duration_ticks(max([10, *(p.start_delay_max or 0 for p in told)]))
    return as_dict(lines, shape)


def _story(point: CheckpointPoint) -> str:
    return f"{title_of(point)}<br>{_('start delay')} {duration_text(point.start_delay_max)}"
