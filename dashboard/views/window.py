"""The time range of a job's page from the query string: a range up to now, or the time between two dates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from django.http import HttpRequest

from dashboard.forms.window import WindowForm
from dashboard.queries.series import DEFAULT_RANGE, RANGES, SHORTEST, Span, axis_of, first_checkpoint_at, span_of
from monitoring.models import Job


@dataclass(frozen=True)
class Window:
    """The time range of a page.

    `name` is a key of RANGES, or "" if a start or an end was given. Invalid parameters are in `form.errors` and are
    otherwise ignored.
    """

    form: WindowForm
    name: str
    span: Span  # shortened to the job's history if a range up to now was requested
    axis: Span  # the requested range
    ranges: tuple[str, ...] = tuple(RANGES)

    @property
    def status(self) -> int:
        """Return the HTTP status of the page."""
        return 400 if self.form.errors else 200


def window_of(request: HttpRequest, job: Job, now: datetime, default: str = DEFAULT_RANGE) -> Window:
    form = WindowForm(request.GET)
    form.is_valid()
    since, until = form.cleaned_data.get("since"), form.cleaned_data.get("until")
    chosen = request.GET.get("range", default)
    name = chosen if chosen in RANGES else default
    span = _from_to(job, since, until, now) if since or until else span_of(job, name, now)
    span = replace(span, run=form.cleaned_data.get("run"))
    return Window(form, "", span, span) if since or until else Window(form, name, span, axis_of(name, span))


def _from_to(job: Job, since: datetime | None, until: datetime | None, now: datetime) -> Span:
    """Return the time between two dates, limited to now and at least SHORTEST long."""
    end = min(until or now, now)
    start = since or first_checkpoint_at(job) or end - SHORTEST
    return Span(min(start, end - SHORTEST), end) if start >= end else Span(start, end)
