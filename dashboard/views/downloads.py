"""Download the data of a job's pages as CSV or JSON, with the filters of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, methodcaller
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone

from dashboard.charts.durations import unattributed
from dashboard.downloads import Column, download
from dashboard.forms.compare import CompareForm
from dashboard.forms.history import HistoryForm
from dashboard.queries.comparison import Difference, compare
from dashboard.queries.detail import COLUMNS, SubtaskRow, read_subtasks
from dashboard.queries.finding import find_checkpoint
from dashboard.queries.history import all_checkpoints, unreadable_files
from dashboard.queries.rolled import RolledPoint, read_chart
from dashboard.queries.series import CheckpointPoint
from dashboard.queries.summary import KINDS, MEASURES, RunSummary, read_by_run, read_summary
from dashboard.views.job import find_job
from dashboard.views.window import window_of
from monitoring.history.pipeline.columns import FIGURES
from monitoring.history.quantiles import P95_FROM, P95_TO
from monitoring.history.rows import Unreadable, operators_of
from monitoring.models import Checkpoint, Job, OperatorCheckpoint, RunException

Writer = Callable[[HttpRequest, Job, str], HttpResponseBase]


def _same(*names: str) -> list[Column[Any]]:
    """Return columns with the names of the row's attributes, and a unit as suffix."""
    return [Column(f"{name}{_UNITS.get(name, '')}", attrgetter(name)) for name in names]


_UNITS = {
    **{measure.name: "_ms" if measure.unit == "ms" else "_bytes" for measure in MEASURES},
    **dict.fromkeys(("median", "p95", "longest", "duration", "start_delay", "alignment", "sync"), "_ms"),
    **dict.fromkeys(("asynchronous", "start_delay_max"), "_ms"),
    **dict.fromkeys(("checkpointed", "processed", "persisted"), "_bytes"),
}
CHECKPOINTS: list[Column[Checkpoint]] = [
    Column("run", attrgetter("run.number")),
    *_same("checkpoint_id", "status", "is_savepoint", "checkpoint_type", "savepoint_format", "triggered_at"),
    *_same("latest_ack_at", "failed_at", "num_subtasks", "num_acknowledged_subtasks"),
    *_same(*(measure.name for measure in MEASURES)),
    *_same("external_path", "discarded", "failure_message"),
]
RUNS: list[Column[RunSummary]] = _same(
    *("number", "state", "started_at", "ended_at", "completed", "failed", "median", "p95", "longest", "checkpointed"),
    "state_size",
)
POINTS: list[Column[CheckpointPoint]] = [
    *_same("run_number", "checkpoint_id", "triggered_at", "failed", "is_savepoint", "duration", "start_delay"),
    *_same("alignment", "sync", "asynchronous"),
    Column("other_ms", unattributed),
    *_same("state_size", "checkpointed_size", "processed", "persisted", "start_delay_max", "alignment_max"),
    *_same("stands_for"),
]
EXCEPTIONS: list[Column[RunException]] = [
    Column("run", attrgetter("run.number")),
    *_same("at", "name", "message", "root_cause", "task", "host", "stacktrace"),
]


def _rolled_value(figure: str, what: str) -> Callable[[RolledPoint], Any]:
    return lambda point: getattr(point.figures[figure], what)


_ROLLED_UNITS = {figure: "_bytes" if "size" in figure or figure == "processed" else "_ms" for figure in FIGURES}
_ROLLED_VALUES = ("median", "p95", "mean", "maximum")
ROLLED_POINTS: list[Column[RolledPoint]] = [
    *_same("start", "end"),
    *(Column(what, methodcaller("count", what)) for what in ("completed", "failed")),
    *(
        Column(f"{figure}_{what}{_ROLLED_UNITS[figure]}", _rolled_value(figure, what))
        for figure in FIGURES
        for what in _ROLLED_VALUES
    ),
]
DIFFERENCES: list[Column[Difference]] = [
    Column("operator", attrgetter("of")),
    Column("figure", attrgetter("label")),
    *_same("unit", "before", "after", "change", "ratio"),
]


def of_job(request: HttpRequest, pk: int, what: str, form: str) -> HttpResponseBase:
    """Return a download by its name in WRITERS. Errors of filters are JSON: `{"errors": {"took": ["…"]}}`."""
    if what not in WRITERS:
        raise Http404
    return WRITERS[what](request, find_job(pk), form)


def _history(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    asked = HistoryForm(request.GET)
    if not asked.is_valid():
        return _wrong(asked.errors)
    if unreadable := unreadable_files(job, asked.chosen):
        return JsonResponse({"errors": {"archive": unreadable}}, status=503)
    return download(form, f"{job.name}-history", CHECKPOINTS, all_checkpoints(job, asked.chosen))


def _summary(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    window = window_of(request, job, timezone.now(), "24h")
    if window.form.errors:
        return _wrong(window.form.errors)
    summary = read_summary(job, window.span, _kind(request))
    figures: list[Column[tuple[str, Any]]] = [
        Column(f"{m.name}{_UNITS[m.name]}", _nth(place)) for place, m in enumerate(MEASURES)
    ]
    name: Column[tuple[str, Any]] = Column("measure", lambda row: row[0])
    rolled = f"roll-ups, p95 between p{P95_FROM} and p{P95_TO}" if summary.rolled else "checkpoints"
    rolled += ", whole UTC days" if summary.whole_days else ""
    source: Column[tuple[str, Any]] = Column("told_from", lambda row: rolled)
    return download(form, f"{job.name}-summary", [name, *figures, source], summary.rows.items())


def _nth(place: int) -> Callable[[tuple[str, Any]], Any]:
    return lambda row: row[1][place]


def _runs(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    window = window_of(request, job, timezone.now(), "24h")
    if window.form.errors:
        return _wrong(window.form.errors)
    return download(form, f"{job.name}-runs", RUNS, read_by_run(job, window.span, _kind(request)))


def _points(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    window = window_of(request, job, timezone.now())
    if window.form.errors:
        return _wrong(window.form.errors)
    rolled, points = read_chart(job, window.span, tuple(FIGURES), window.axis)
    if rolled.points is None:
        return download(form, f"{job.name}-chart", POINTS, points)
    return download(form, f"{job.name}-chart", ROLLED_POINTS, rolled.points)


def _exceptions(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    rows = RunException.objects.filter(run__job=job).select_related("run").order_by("-run__number", "-at", "-id")
    return download(form, f"{job.name}-exceptions", EXCEPTIONS, rows.iterator(chunk_size=100))


def _comparison(request: HttpRequest, job: Job, form: str) -> HttpResponseBase:
    asked = CompareForm(job, request.GET)
    if not asked.is_valid():
        return _wrong(asked.errors)
    a, b = asked.cleaned_data["a"], asked.cleaned_data["b"]
    try:
        found = compare(job, a, b, timezone.now())
    except Unreadable as why:
        return JsonResponse({"errors": {"archive": [str(why)]}}, status=503)
    return download(form, f"{job.name}-compared", DIFFERENCES, [each for _, group in found.groups for each in group])


WRITERS: dict[str, Writer] = {
    "history": _history,
    "summary": _summary,
    "runs": _runs,
    "chart": _points,
    "exceptions": _exceptions,
    "compare": _comparison,
}


def _wrong(errors: Any) -> JsonResponse:
    return JsonResponse({"errors": {field: list(texts) for field, texts in errors.items()}}, status=400)


def _kind(request: HttpRequest) -> str:
    kind = request.GET.get("kind", "")
    return kind if kind in KINDS else ""


def of_checkpoint(request: HttpRequest, pk: int, form: str) -> HttpResponseBase:
    """Return a download with every subtask of every operator of a checkpoint."""
    try:
        checkpoint = find_checkpoint(request, pk)
        operators = operators_of(checkpoint)
    except Unreadable as why:
        return JsonResponse({"errors": {"archive": [str(why)]}}, status=503)
    name = f"{checkpoint.run.job.name}-{checkpoint.run.number}-{checkpoint.checkpoint_id}-subtasks"
    return download(form, name, SUBTASKS, _subtasks(operators))


def _subtasks(operators: Iterable[OperatorCheckpoint]) -> Iterator[tuple[OperatorCheckpoint, SubtaskRow]]:
    for operator in operators:
        for row in read_subtasks(operator).rows:
            yield operator, row


def _value_of(field: str) -> Callable[[tuple[OperatorCheckpoint, SubtaskRow]], Any]:
    return lambda each: each[1].value(field)


SUBTASKS: list[Column[tuple[OperatorCheckpoint, SubtaskRow]]] = [
    Column("operator", lambda each: each[0].name),
    Column("vertex_id", lambda each: each[0].vertex_id),
    Column("subtask", lambda each: each[1].index),
    Column("acknowledged_at", lambda each: each[1].acknowledged_at),
    *(Column(f"{c.field.removeprefix('subtask_')}_{c.unit}", _value_of(c.field)) for c in COLUMNS),
    Column("unaligned", lambda each: each[1].unaligned),
    Column("aborted", lambda each: each[1].aborted),
]
