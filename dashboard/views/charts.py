"""Charts as JSON, each with the note that its card shows below the title."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.charts.alignment import alignment_figure
from dashboard.charts.durations import alignments_figure, delays_figure, durations_figure
from dashboard.charts.figure import add_flags, clock_of, note_of
from dashboard.charts.lanes import lanes_figure
from dashboard.charts.rolled import FIGURES, has_figures, rolled_figure
from dashboard.charts.sizes import has_in_flight_data, in_flight_figure, sizes_figure
from dashboard.queries.changes import JobChange, read_changes, with_comparisons
from dashboard.queries.operators import read_operator_trends
from dashboard.queries.rolled import RolledPoint, read_chart
from dashboard.queries.series import (
    MOST_COLUMNS,
    SHORTEST,
    AlignmentGrid,
    CheckpointPoint,
    Gap,
    RunStart,
    Span,
    read_alignment,
    read_gaps,
    read_run_starts,
)
from dashboard.views.job import find_job
from dashboard.views.window import Window, window_of
from monitoring.history.forgetting import hours_kept
from monitoring.history.pipeline.columns import DAY, HOUR, MINUTE
from monitoring.history.quantiles import P95_FROM, P95_TO
from monitoring.models import Job
from monitoring.units import age_text, duration_text

Builder = Callable[[Sequence[CheckpointPoint], Sequence[RunStart], Span, Sequence[Gap]], dict[str, Any]]
BUILDERS: dict[str, Builder] = {
    "durations": durations_figure,
    "sizes": sizes_figure,
    "moved": in_flight_figure,
    "alignments": alignments_figure,
    "delays": delays_figure,
}

# The lanes of the overview's figure for long time ranges, and all figures of roll-ups that they need.
_LANES = ("durations", "alignments", "sizes")
_LANE_FIGURES = tuple(figure for name in _LANES for figure in FIGURES[name])

# Whether a chart has anything to draw: a failed checkpoint may have neither a size, an alignment nor a start delay.
_HAS_FIGURES: dict[str, Callable[[Sequence[CheckpointPoint]], bool]] = {
    "durations": bool,
    "sizes": lambda points: any(not point.failed for point in points),
    "moved": has_in_flight_data,
    "alignments": lambda points: any(point.alignment_max is not None for point in points),
    "delays": lambda points: any(point.start_delay_max is not None for point in points),
}


def chart(request: HttpRequest, pk: int, name: str) -> JsonResponse:
    """Return `{"figure", "note", "empty"}` as JSON. An unknown range counts as the default range."""
    job, now = find_job(pk), timezone.now()
    window = window_of(request, job, now)
    axis = window.axis
    if name == "lanes":
        drawn = _lanes(job, window)
    elif name == "alignment":
        drawn = _alignment(job, axis)
    elif name in BUILDERS:
        drawn = _chart(job, name, window)
    else:
        raise Http404
    if not drawn["empty"] and (changes := _changes_of(job, axis, now)):
        add_flags(drawn["figure"], changes, axis)
        drawn["note"] = _joined(drawn["note"], _("Flags: changes. Click one to compare the time before and after it."))
    return JsonResponse(drawn)


def changes(request: HttpRequest, pk: int) -> HttpResponse:
    """Render the changes of the time range as a list, because the flags of charts cannot be reached by keyboard."""
    job, now = find_job(pk), timezone.now()
    window = window_of(request, job, now)
    return render(request, "job/changes.html", {"changes": _changes_of(job, window.axis, now)})


def operators(request: HttpRequest, pk: int) -> HttpResponse:
    """Render a table with the state of each operator in the time range, and its trend."""
    job, now = find_job(pk), timezone.now()
    trends = read_operator_trends(job, window_of(request, job, now).span, now)
    each = {MINUTE: _("minute"), HOUR: _("hour"), DAY: _("UTC day")}.get(trends.seconds or 0)
    note = (
        _("State: the largest in the last %(each)s, from roll-ups. p95 is approximate.") % {"each": each}
        if each
        else ""
    )
    return render(request, "job/operator_trends.html", {"trends": trends, "note": note})


def _changes_of(job: Job, axis: Span, now: datetime) -> list[tuple[JobChange, str]]:
    """Return the changes, each with a comparison that covers a quarter of the time range on both sides."""
    return with_comparisons(read_changes(job, axis), job.pk, (axis.end - axis.start) / 4, now)


def _chart(job: Job, name: str, window: Window) -> dict[str, Any]:
    axis = window.axis
    rolled, points = read_chart(job, window.span, FIGURES[name], axis)
    starts, gaps = read_run_starts(job, axis), read_gaps(job, axis)
    if rolled.points is not None:
        figure = rolled_figure(name, rolled.points, starts, axis, gaps)
        note = _rollup_note(rolled.points, whole_days=rolled.whole_days)
        return {
            "figure": figure,
            "note": _joined(note, note_of(figure), _beginning(window)),
            "empty": not has_figures(name, rolled.points),
            "rolled": True,
        }
    figure = BUILDERS[name](points, starts, axis, gaps)
    note = _points_note(points, starts, axis, gaps, rolled.behind)
    return {
        "figure": figure,
        "note": _joined(note, note_of(figure), _beginning(window)),
        "empty": not _HAS_FIGURES[name](points),
    }


def table(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Render the values of a chart as a table, newest first, for screen readers and for copying."""
    job = find_job(pk)
    window = window_of(request, job, timezone.now())
    axis = window.axis
    if name == "alignment":
        return render(request, "job/alignment_table.html", {"rows": read_alignment(job, axis).by_subtask})
    if name not in BUILDERS:
        raise Http404
    rolled, points = read_chart(job, window.span, FIGURES[name], axis)
    if rolled.points is not None:
        rows = [(point, point.figures[FIGURES[name][0]]) for point in reversed(rolled.points)]
        note = _rollup_note(rolled.points, whole_days=rolled.whole_days)
        texts = {"points": rows, "note": note, "is_size": name in ("sizes", "moved")}
        return render(request, "job/chart_table_rolled.html", texts)
    context = {"name": name, "points": points[::-1], "note": _points_note(points, [], axis, [])}
    return render(request, "job/chart_table.html", context)


def _joined(*notes: str) -> str:
    return " ".join(note for note in notes if note)


def _beginning(window: Window) -> str:
    """Return a note about the empty part of an axis that begins before the job's history."""
    span = window.span
    if span.start <= window.axis.start or span.end - span.start <= SHORTEST:
        return ""
    return _("The history begins on %(at)s.") % {"at": clock_of(span.start)}


def _lanes(job: Job, window: Window) -> dict[str, Any]:
    """Return the figure of the overview: durations, alignment and sizes with one time axis.

    The lane of alignment has each subtask. Long time ranges have its trend instead.
    """
    axis = window.axis
    rolled, points = read_chart(job, window.span, _LANE_FIGURES, axis)
    starts, gaps = read_run_starts(job, axis), read_gaps(job, axis)
    if rolled.points is not None:
        figures = [rolled_figure(name, rolled.points, [], axis) for name in _LANES]
        notes = [_rollup_note(rolled.points, whole_days=rolled.whole_days)]
        drawn = [has_figures(name, rolled.points) for name in _LANES]
    else:
        grid = read_alignment(job, axis)
        figures = [durations_figure(points, [], axis), alignment_figure(grid, axis), sizes_figure(points, [], axis)]
        notes = [_points_note(points, starts, axis, gaps, rolled.behind), _worst(grid, axis) if grid.values else ""]
        drawn = [bool(points), bool(grid.values), _HAS_FIGURES["sizes"](points)]
    texts = ("", _("No subtask data in this time range."), _("No completed checkpoint in this time range."))
    missing = ["" if is_drawn else text for text, is_drawn in zip(texts, drawn, strict=True)]
    notes += [*dict.fromkeys(note_of(figure) for figure in figures), _beginning(window)]
    return {
        "figure": lanes_figure(figures, starts, axis, gaps, missing),
        "note": _joined(*notes),
        "empty": not any(drawn),
        **({"rolled": True} if rolled.points is not None else {}),
    }


def _alignment(job: Job, span: Span) -> dict[str, Any]:
    grid = read_alignment(job, span)
    return {"figure": alignment_figure(grid, span), "note": _worst(grid, span), "empty": not grid.values}


def _worst(grid: AlignmentGrid, span: Span) -> str:
    """Return the note of the alignment chart, which names the longest wait."""
    waits = [
        (value or 0, name, subtask, column)
        for (name, subtask), line in zip(grid.subtasks, grid.values, strict=True)
        for value, column in zip(line, grid.columns, strict=True)
    ]
    if not waits or max(waits, key=lambda wait: wait[0])[0] <= 0:
        return _("No subtask waited.")
    value, name, subtask, column = max(waits, key=lambda wait: wait[0])
    thinned = sum(column.stands_for for column in grid.columns) > len(grid.columns)
    part = age_text((span.end - span.start) / MOST_COLUMNS)
    texts = [
        _("Longest wait: subtask %(subtask)s of %(operator)s, %(wait)s in checkpoint %(checkpoint)s.")
        % {"subtask": subtask, "operator": name, "wait": duration_text(value), "checkpoint": column.checkpoint_id}
    ]
    if grid.left_out:
        texts.append(_("%(count)s subtasks with shorter waits are not shown.") % {"count": grid.left_out})
    if thinned:
        texts.append(_("Showing the checkpoint with the longest wait per %(part)s or more.") % {"part": part})
    return " ".join(texts)


def _rollup_note(points: Sequence[RolledPoint], *, whole_days: bool) -> str:
    counted = sum(point.count("completed") + point.count("failed") for point in points)
    widest = max((point.end - point.start for point in points), default=timedelta())
    each = _("hour") if widest <= timedelta(hours=1) else _("UTC day")
    of = {"each": each, "count": f"{counted:,}", "low": P95_FROM, "high": P95_TO}
    drawn = _(
        "Showing each %(each)s of %(count)s checkpoints, from roll-ups. Percentiles are approximate:"
        " p95 lies between the exact p%(low)s and p%(high)s."
    )
    kept = _("Only whole UTC days are shown: hourly roll-ups are kept for %(days)s days.") % {"days": hours_kept().days}
    return f"{drawn % of} {kept if whole_days else _('Choose a shorter time range to see each checkpoint.')}"


def _points_note(
    points: Sequence[CheckpointPoint], starts: Sequence[RunStart], span: Span, gaps: Sequence[Gap], behind: str = ""
) -> str:
    thinned = sum(point.stands_for for point in points)
    notes = []
    if thinned > len(points):
        drawn = {"part": age_text(span.bucket), "count": f"{thinned:,}"}
        notes.append(_("Showing the slowest checkpoint per %(part)s (%(count)s total).") % drawn)
    if behind:
        notes.append(_("Roll-ups are not used: %(reason)s.") % {"reason": behind})
    if any(start.by_engine for start in starts):
        notes.append(_("Dotted: new run or engine restart."))
    if gaps:
        notes.append(_("Shaded: checkpoints that the engine dropped before Waymark polled it."))
    return " ".join(notes)
