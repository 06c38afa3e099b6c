"""How much state is there, and how much of it does each checkpoint write?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.charts.figure import as_dict, byte_ticks, layout, moment, restart_marks, time_axis
from dashboard.queries.series import CheckpointPoint, RunStart, Span
from dashboard.units import bytes_text


def sizes_figure(points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span) -> dict[str, Any]:
    """Full state size as a line, written bytes as an area below it, savepoints as diamonds."""
    done = [p for p in points if not p.failed]
    checkpoints = [p for p in done if not p.is_savepoint]
    savepoints = [p for p in done if p.is_savepoint]
    lines_only = "lines" if len(checkpoints) > 1 else "markers"
    traces = [
        go.Scatter(
            meta={"role": "written"},
            x=[moment(p.triggered_at) for p in checkpoints],
            y=[p.checkpointed_size for p in checkpoints],
            mode=lines_only,
            fill="tozeroy",
            line={"width": 1.5, "shape": "hv"},
            hoverinfo="skip",
        ),
        go.Scatter(
            meta={"role": "state"},
            x=[moment(p.triggered_at) for p in checkpoints],
            y=[p.state_size for p in checkpoints],
            mode=lines_only,
            line={"width": 2},
            hovertext=[_story(p) for p in checkpoints],
            hoverinfo="text",
        ),
        go.Scatter(
            meta={"role": "savepoint"},
            x=[moment(p.triggered_at) for p in savepoints],
            y=[p.checkpointed_size for p in savepoints],
            mode="markers",
            marker={"symbol": "diamond", "size": 9},
            hovertext=[_story(p) for p in savepoints],
            hoverinfo="text",
        ),
    ]
    highest = max((max(p.state_size or 0, p.checkpointed_size or 0) for p in done), default=0)
    shape = layout(**restart_marks(starts))
    shape["xaxis"] |= time_axis(span)
    shape["yaxis"] |= byte_ticks(max(highest, 1024), bytes_text)
    return as_dict(traces, shape)


def _story(point: CheckpointPoint) -> str:
    kind = "savepoint" if point.is_savepoint else "checkpoint"
    return "<br>".join(
        [
            f"<b>{kind} {point.checkpoint_id}</b> · run {point.run_number} · {point.triggered_at:%H:%M:%S}",
            f"full size {bytes_text(point.state_size)}",
            f"written {bytes_text(point.checkpointed_size)}",
        ]
    )
