"""The charts of durations: the phases of each checkpoint, and the longest alignment and start delay of its subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import plotly.graph_objects as go
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from dashboard.charts.figure import (
    above_axis,
    as_dict,
    duration_ticks,
    failure_bars,
    hover_points,
    layout,
    marks,
    moment,
    time_axis,
    title_of,
    top_of_axis,
)
from dashboard.queries.series import AlignmentColumn, CheckpointPoint, Gap, RunStart, Span
from monitoring.units import duration_text

# The phases of one of the last subtasks to acknowledge, from the bottom of a bar to its top.
PHASES = (
    ("async", "asynchronous", noop("async")),
    ("sync", "sync", noop("sync")),
    ("alignment", "alignment", noop("alignment")),
    ("start-delay", "start_delay", noop("start delay")),
)
FAILURE_BARS = 60  # the number of parts of a span for which failed checkpoints are counted


def durations_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return stacked phases for completed checkpoints, and a hatched bar for each failed checkpoint.

    Failed checkpoints are also counted, in a lane below.
    """
    completed = [p for p in points if not p.failed]
    failed = [p for p in points if p.failed]
    widths = dict(zip(points, bar_widths(points, span), strict=True))
    stacked = [_bars(name, completed, [getattr(p, field) or 0 for p in completed], widths) for name, field, _ in PHASES]
    rest = _bars("rest", completed, [unattributed(p) for p in completed], widths)
    broken = _bars("failed", failed, [p.duration or 0 for p in failed], widths)
    broken.marker.pattern.shape = "/"
    heights = [max(p.duration or 0, _phases(p)) for p in points]
    shape = layout(barmode="stack", **marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    shape["yaxis"] |= duration_ticks(max(top_of_axis(heights), 10))
    top = shape["yaxis"]["range"][1]
    hover = hover_points(points, [min(height, top) for height in heights], [_tooltip(p) for p in points])
    drawn = [(point.triggered_at, height) for point, height in zip(points, heights, strict=True)]
    above = above_axis(drawn, shape["yaxis"], duration_text)
    counted = failure_bars(_failures(points, span), shape, span)
    return as_dict([*stacked, rest, broken, hover, *above, *counted], shape)


def _failures(points: Sequence[CheckpointPoint], span: Span) -> list[tuple[datetime, datetime, int]]:
    """Return start, end and number of failed checkpoints of each part of the span that has some."""
    length = (span.end - span.start) / FAILURE_BARS
    counts: Counter[int] = Counter()
    for point in points:
        if point.failed:
            counts[min(int((point.triggered_at - span.start) / length), FAILURE_BARS - 1)] += point.stands_for
    return [(span.start + part * length, span.start + (part + 1) * length, counts[part]) for part in sorted(counts)]


def unattributed(point: CheckpointPoint) -> int:
    """Return the end-to-end duration without the phases: all of it if the phases are unknown."""
    return max(0, (point.duration or 0) - _phases(point))


def bar_widths(points: Sequence[CheckpointPoint] | Sequence[AlignmentColumn], span: Span) -> list[float]:
    """Return the widths of bars in ms: not overlapping, and not wider than the usual time between checkpoints."""
    at = [p.triggered_at.timestamp() * 1000 for p in points]
    gaps = [later - sooner for sooner, later in pairwise(at)]
    least = (span.end - span.start).total_seconds() * 1000 / 900  # the least visible width of a bar
    usual = median([g for g in gaps if g > 0] or [least * 6])
    return [max(least, min(usual, gap) * 0.84) for gap in [*gaps, usual]] if points else []


def _phases(point: CheckpointPoint) -> int:
    return sum(getattr(point, field) or 0 for _, field, _ in PHASES)


def _bars(role: str, points: Sequence[CheckpointPoint], heights: Sequence[int], widths: dict[Any, float]) -> Any:
    return go.Bar(
        meta={"role": role},
        x=[moment(p.triggered_at) for p in points],
        y=list(heights),
        width=[widths[p] for p in points],
        hoverinfo="skip",
        marker={"line": {"width": 0}},
    )


def _tooltip(point: CheckpointPoint) -> str:
    lines = [
        title_of(point),
        f"{_('failed after') if point.failed else _('end to end')} {duration_text(point.duration)}",
    ]
    if point.failed:
        lines += [point.failure[:90]] if point.failure else []
    else:
        lines += [f"{_(label)} {duration_text(getattr(point, field))}" for _role, field, label in reversed(PHASES)]
        lines.append(f"{_('other')} {duration_text(unattributed(point))}")
    if point.stands_for > 1:
        lines.append(_("slowest of %(count)s checkpoints") % {"count": point.stands_for})
    return "<br>".join(lines)


def delays_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return a line of the longest start delay in each checkpoint. Back-pressure increases this delay first."""
    return _longest(points, starts, span, gaps, ("start", "start_delay_max", _("start delay")))


def alignments_figure(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap] = ()
) -> dict[str, Any]:
    """Return a line of the longest alignment of a subtask in each checkpoint."""
    return _longest(points, starts, span, gaps, ("alignment", "alignment_max", _("alignment")))


def _longest(
    points: Sequence[CheckpointPoint],
    starts: Sequence[RunStart],
    span: Span,
    gaps: Sequence[Gap],
    drawn: tuple[str, str, str],
) -> dict[str, Any]:
    """Return a line for each run. `drawn` has the role of the lines, the field of a point and its label."""
    role, field, label = drawn
    known = [p for p in points if getattr(p, field) is not None]
    lines = [
        go.Scatter(
            meta={"role": role},
            x=[moment(p.triggered_at) for p in known if p.run_number == run],
            y=[getattr(p, field) for p in known if p.run_number == run],
            mode="lines+markers" if len(known) <= 60 else "lines",
            line={"width": 2},
            marker={"size": 5},
            hoverinfo="skip",
        )
        for run in sorted({p.run_number for p in known})
    ]
    shape = layout(**marks(starts, span, gaps))
    shape["xaxis"] |= time_axis(span)
    waits = [(p.triggered_at, getattr(p, field)) for p in known]
    shape["yaxis"] |= duration_ticks(max(10, top_of_axis([wait for _at, wait in waits])))
    heights = [min(wait, shape["yaxis"]["range"][1]) for _at, wait in waits]
    texts = [f"{title_of(p)}<br>{label} {duration_text(getattr(p, field))}" for p in known]
    above = above_axis(waits, shape["yaxis"], duration_text)
    return as_dict([*lines, hover_points(known, heights, texts), *above], shape)
