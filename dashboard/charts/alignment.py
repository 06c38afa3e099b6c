"""Which subtask made a checkpoint wait, and when?"""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects as go
from django.utils.timezone import localtime

from dashboard.charts.figure import as_dict, clock_of, layout
from dashboard.queries.series import AlignmentGrid
from dashboard.units import duration_text

_PATH = re.compile(r"\[[^\]]*/(?=[^/\]])")  # a source's long path: its last part tells it from the others
# Upper limits in ms of the steps that the legend names; the last step is everything above.
STEPS = (20, 100, 500, 2_000)


def step_of(alignment: int | None) -> int | None:
    """0 … len(STEPS); None where the subtask did not acknowledge."""
    if alignment is None:
        return None
    return sum(alignment >= limit for limit in STEPS)


def alignment_figure(grid: AlignmentGrid) -> dict[str, Any]:
    """One column a checkpoint, one row a subtask, in steps instead of a continuous scale: they can be told apart."""
    names = [f"{_short(name)} · {subtask}" for name, subtask in grid.subtasks]
    columns = list(range(len(grid.columns)))
    trace = go.Heatmap(
        meta={"role": "steps", "steps": len(STEPS) + 1},
        x=columns,
        y=list(range(len(names))),
        z=[[step_of(value) for value in line] for line in grid.values],
        text=[
            [
                f"<b>{name}</b><br>checkpoint {column.checkpoint_id} · {clock_of(column.triggered_at)}"
                f"<br>alignment {duration_text(value)}"
                for column, value in zip(grid.columns, line, strict=True)
            ]
            for name, line in zip(names, grid.values, strict=True)
        ],
        hoverinfo="text",
        xgap=2,
        ygap=2,
        zmin=0,
        zmax=len(STEPS),
        showscale=False,
    )
    every = max(1, len(columns) // 6)
    shape = layout(hovermode="closest")
    shape["margin"]["t"] = 4
    shape["dragmode"] = False  # its columns are checkpoints, not time
    shape["xaxis"] |= {
        "fixedrange": True,
        "tickmode": "array",
        "tickvals": columns[::every],
        "ticktext": [f"{localtime(column.triggered_at):%H:%M:%S}" for column in grid.columns[::every]],
    }
    shape["yaxis"] |= {
        "autorange": "reversed",
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "ticks": "",
    }
    return as_dict([trace], shape)


def _short(name: str, limit: int = 30) -> str:
    name = _PATH.sub("[…/", name)
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
