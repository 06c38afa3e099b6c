"""The alignment chart: it shows which subtask made a checkpoint wait, and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _

from dashboard.charts.durations import bar_widths
from dashboard.charts.figure import as_dict, clock_of, layout, moment, time_axis
from dashboard.queries.series import AlignmentColumn, AlignmentGrid, Span
from monitoring.units import duration_text

_PATH = re.compile(r"\[[^\]]*/(?=[^/\]])")  # the long path of a source, of which only the last part is shown
# The upper limits of the legend's steps, in ms. The last step has no limit.
STEPS = (20, 100, 500, 2_000)
_LEAST_ROWS = 5  # the chart is at least as high as this many rows
_ROWS_WITH_GAP = 16
_LABELS = 10  # the maximum number of row labels
_LABEL = 14  # the maximum length of an operator's name in a label


def step_of(alignment: int | None) -> int | None:
    """Return the step of a wait, 0 … len(STEPS), or None if the subtask did not acknowledge."""
    if alignment is None:
        return None
    return sum(alignment >= limit for limit in STEPS)


def alignment_figure(grid: AlignmentGrid, span: Span) -> dict[str, Any]:
    """Return a heat map with a column for each checkpoint, at its time, and a row for each subtask.

    Colours have a few steps instead of a continuous scale, so that they can be distinguished. The chart has the same
    height for any number of subtasks: a few rows have room below, and of many rows only some are labelled.
    """
    names = [f"{_short(name)} · {subtask}" for name, subtask in grid.subtasks]
    trace = go.Heatmap(
        meta={"role": "steps", "steps": len(STEPS) + 1},
        x=[moment(at) for at in _edges(grid.columns, span)],
        y=list(range(len(names))),
        z=[_with_gaps([step_of(value) for value in line]) for line in grid.values],
        text=[
            _with_gaps([_tooltip(name, *cell) for cell in zip(grid.columns, line, strict=True)])
            for name, line in zip(names, grid.values, strict=True)
        ],
        customdata=[_with_gaps([column.pk for column in grid.columns]) for _line in grid.values],
        hoverinfo="text",
        hoverongaps=False,
        ygap=2 if len(names) <= _ROWS_WITH_GAP else 0.5,
        zmin=0,
        zmax=len(STEPS),
        showscale=False,
    )
    shape = layout(hovermode="closest")
    shape["xaxis"] |= time_axis(span)
    labelled = range(0, len(names), max(1, ceil(len(names) / _LABELS)))
    shape["yaxis"] |= {
        "range": [max(len(names), _LEAST_ROWS) - 0.5, -0.5],
        "tickmode": "array",
        "tickvals": list(labelled),
        "ticktext": [f"{_short(grid.subtasks[row][0], _LABEL)} · {grid.subtasks[row][1]}" for row in labelled],
        "ticks": "",
        "showgrid": False,
    }
    return as_dict([trace], shape)


def _edges(columns: Sequence[AlignmentColumn], span: Span) -> list[datetime]:
    """Return the left and the right edge of each column. Columns do not overlap."""
    edges: list[datetime] = []
    for column, width in zip(columns, bar_widths(columns, span), strict=True):
        half = timedelta(milliseconds=width / 2)
        left = max(column.triggered_at - half, edges[-1]) if edges else column.triggered_at - half
        edges += [left, max(column.triggered_at + half, left)]
    return edges


def _with_gaps(cells: Sequence[Any]) -> list[Any]:
    """Insert None between two columns, so that the gap between them is not drawn."""
    return [each for cell in cells for each in (cell, None)][:-1]


def _tooltip(name: str, column: AlignmentColumn, alignment: int | None) -> str:
    about = f"{name}<br>{_('checkpoint')} {column.checkpoint_id} · {clock_of(column.triggered_at)}"
    return f"{about}<br>{_('alignment')} {duration_text(alignment)}"


def _short(name: str, limit: int = 30) -> str:
    name = _PATH.sub("[…/", name)
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
