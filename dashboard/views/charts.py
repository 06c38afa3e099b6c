"""Figures as JSON, each with the sentence that its card shows below the title."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, JsonResponse
from django.utils import timezone

from dashboard.charts.alignment import alignment_figure
from dashboard.charts.durations import durations_figure
from dashboard.charts.sizes import sizes_figure
from dashboard.queries.series import (
    AlignmentGrid,
    CheckpointPoint,
    RunStart,
    Span,
    read_alignment,
    read_points,
    read_run_starts,
)
from dashboard.units import age_text, duration_text
from dashboard.views.job import find_job
from dashboard.views.window import window_of
from monitoring.models import Job

Builder = Callable[[list[CheckpointPoint], list[RunStart], Span], dict[str, Any]]


def chart(request: HttpRequest, pk: int, name: str) -> JsonResponse:
    """`{"figure", "note", "empty"}`; unknown ranges count as the default one."""
    job = find_job(pk)
    span = window_of(request, job, timezone.now()).span
    if name == "alignment":
        return JsonResponse(_alignment(job, span))
    builders: dict[str, Builder] = {"durations": durations_figure, "sizes": sizes_figure}
    if name not in builders:
        raise Http404
    points, starts = read_points(job, span), read_run_starts(job, span)
    return JsonResponse(
        {
            "figure": builders[name](points, starts, span),
            "note": _how_drawn(points, starts, span),
            "empty": not points,
        }
    )


def _alignment(job: Job, span: Span) -> dict[str, Any]:
    grid = read_alignment(job, span)
    return {"figure": alignment_figure(grid), "note": _worst(grid), "empty": not grid.values, "rows": len(grid.values)}


def _worst(grid: AlignmentGrid) -> str:
    """The sentence that the picture should make plain."""
    waits = [
        (value or 0, name, subtask, column)
        for (name, subtask), line in zip(grid.subtasks, grid.values, strict=True)
        for value, column in zip(line, grid.columns, strict=True)
    ]
    if not waits or max(waits, key=lambda wait: wait[0])[0] <= 0:
        return "No subtask waited."
    value, name, subtask, column = max(waits, key=lambda wait: wait[0])
    hidden = f" {grid.left_out} subtasks that waited less are not drawn." if grid.left_out else ""
    drawn = f" Drawn: the newest {len(grid.columns)} checkpoints of the range."
    longest = f"Longest wait: subtask {subtask} of {name}, {duration_text(value)} in checkpoint {column.checkpoint_id}."
    return f"{longest}{hidden}{drawn}"


def _how_drawn(points: list[CheckpointPoint], starts: list[RunStart], span: Span) -> str:
    thinned = any(point.stands_for > 1 for point in points)
    notes = [f"Drawn: the slowest checkpoint of every {age_text(span.bucket)}."] if thinned else []
    if any(start.by_engine for start in starts):
        notes.append("Dotted lines: where a run began, or the engine restarted it.")
    return " ".join(notes)
