"""The history of a job's checkpoints, one checkpoint, and the subtasks of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_noop as _
from django.views.decorators.vary import vary_on_headers

from dashboard.forms.history import HistoryForm
from dashboard.queries.detail import COLUMNS, exceptions_around, read_subtasks
from dashboard.queries.finding import find_checkpoint, find_operator
from dashboard.queries.history import Cursor, neighbours, newest_checkpoint, read_history, unreadable_text
from dashboard.queries.waterfall import waterfall_of
from dashboard.views.job import find_job, job_context
from monitoring.diagnosis.asking import of_checkpoint
from monitoring.history.rows import Unreadable, operators_of
from monitoring.models import CheckpointStatus

SUBTASKS_A_PAGE = 100
OPERATOR_COLUMNS = (
    ("position", _("Order")),
    ("name", _("Operator")),
    ("num_acknowledged_subtasks", _("Acknowledged")),
    ("latest_ack_at", _("Latest acknowledgement")),
    ("end_to_end_duration", _("End to end duration")),
    ("checkpointed_size", _("Checkpointed size")),
    ("state_size", _("Full size")),
    ("processed_data", _("In-flight data")),
)

Row = TypeVar("Row")


@dataclass(frozen=True)
class Heading:
    """The heading of a column. `query` sorts by this column, or reverses the order if it is sorted by it."""

    label: str
    field: str
    sorted: str  # "ascending", "descending" or ""
    query: str
    numeric: bool = True


@dataclass(frozen=True)
class Sort:
    """The order of a table: its column and direction, from the query string."""

    field: str
    descending: bool

    @classmethod
    def parse(cls, asked: Mapping[str, str], allowed: Iterable[str], default: str) -> Sort:
        """Return the requested order, or the default if the column is not allowed."""
        field = asked.get("sort", "")
        return cls(field, asked.get("order") == "desc") if field in allowed else cls(default, False)

    def headings(self, columns: Sequence[tuple[str, str]], texts: Iterable[str] = ()) -> list[Heading]:
        """Return the headings of (field, label) columns.

        The first click sorts a numeric column in descending order, and a column in `texts` in ascending order.
        """
        plain = set(texts)
        return [self._heading(field, label, field not in plain) for field, label in columns]

    def _heading(self, field: str, label: str, numeric: bool) -> Heading:
        mine = field == self.field
        told = ("descending" if self.descending else "ascending") if mine else ""
        down = not self.descending if mine else numeric
        return Heading(label, field, told, f"sort={field}&order={'desc' if down else 'asc'}", numeric)

    def apply(self, rows: Iterable[Row], value: Callable[[Row], Any]) -> list[Row]:
        """Return the sorted rows. Rows without a value come last in both directions."""
        known = [row for row in rows if value(row) is not None]
        unknown = [row for row in rows if value(row) is None]
        return [*sorted(known, key=value, reverse=self.descending), *unknown]


def history(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = HistoryForm(request.GET)
    form.is_valid()
    chosen = form.chosen
    page = read_history(
        job,
        chosen,
        before=Cursor.parse(request.GET.get("before", "")),
        after=Cursor.parse(request.GET.get("after", "")),
    )
    extra = {
        "page": page,
        "form": form,
        "chosen": chosen,
        "statuses": CheckpointStatus.choices,
        "newest": newest_checkpoint(job),
        "beginning": Cursor.beginning(),
        "unreadable": [unreadable_text(why) for why in page.unreadable],
    }
    context = job_context(job, "history") | extra
    return render(request, "job/history.html", context, status=400 if form.errors else 200)


def new_checkpoints(request: HttpRequest, pk: int) -> HttpResponse:
    """Render a notice if there is a newer checkpoint than the newest one on the page."""
    job = find_job(pk)
    seen, newest = Cursor.parse(request.GET.get("seen", "")), newest_checkpoint(job)
    fresh = newest is not None and (seen is None or (newest.at, newest.pk) > (seen.at, seen.pk))
    return render(request, "job/history_news.html", {"job": job, "fresh": fresh, "seen": seen or ""})


@vary_on_headers("HX-Request", "HX-Target")
def checkpoint(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one checkpoint as a page, or as a fragment for the expanded row of the history."""
    try:
        found = find_checkpoint(request, pk)
        operators = operators_of(found)
    except Unreadable as why:
        return _unreadable(request, why)
    sort = Sort.parse(request.GET, dict(OPERATOR_COLUMNS), "position")
    context: dict[str, Any] = {
        "checkpoint": found,
        "operators": sort.apply(operators, lambda operator: getattr(operator, sort.field)),
        "headings": sort.headings(OPERATOR_COLUMNS, texts=("name",)),
    }
    if request.headers.get("HX-Target") == f"operators-{pk}":
        return render(request, "job/operators.html", context)
    # A diagnosis needs the neighbouring checkpoints, and those of an archived one are not in PostgreSQL either.
    context["causes"] = [] if found.archived else of_checkpoint(found, operators, timezone.now())
    if request.headers.get("HX-Request") and request.headers.get("HX-Target") != "checkpoint-live":
        return render(request, "job/checkpoint.html", context)
    job = find_job(found.run.job_id)
    newer, older = neighbours(job, found)
    context |= {
        "waterfall": waterfall_of(operators),
        "newer": newer,
        "older": older,
        "exceptions": exceptions_around(found),
    }
    live = request.headers.get("HX-Target") == "checkpoint-live"
    page = "job/checkpoint_live.html" if live else "job/checkpoint_page.html"
    return render(request, page, job_context(job, "history") | context)


def operator(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a page of an operator's subtasks as a fragment, sorted by the requested column."""
    try:
        found = find_operator(request, pk)
    except Unreadable as why:
        return _unreadable(request, why)
    columns = [("index", _("Subtask")), ("acknowledged_at", _("Acknowledged")), *((c.field, c.label) for c in COLUMNS)]
    sort = Sort.parse(request.GET, dict(columns), "index")
    subtasks = read_subtasks(found)
    rows = sort.apply(subtasks.rows, lambda row: row.value(sort.field))
    context = {
        "operator": found,
        "subtasks": subtasks,
        "headings": sort.headings(columns, texts=("index",)),
        "page": Paginator(rows, SUBTASKS_A_PAGE).get_page(request.GET.get("page")),
        "sort": sort,
    }
    return render(request, "job/operator.html", context)


def _unreadable(request: HttpRequest, why: Unreadable) -> HttpResponse:
    """Report that the file of the archive cannot be read. A fragment has status 200, because htmx ignores a 503."""
    if request.headers.get("HX-Request"):
        return render(request, "job/unreadable.html", {"said": unreadable_text(why)})
    return render(request, "errors/archive.html", {"why": why}, status=503)
