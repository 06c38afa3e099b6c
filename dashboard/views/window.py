"""The time that a job's page looks at, out of its address: a range up to now, or from one moment to another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from django.http import HttpRequest

from dashboard.forms.window import WindowForm
from dashboard.queries.series import DEFAULT_RANGE, RANGES, SHORTEST, Span, first_checkpoint_at, span_of
from monitoring.models import Job


@dataclass(frozen=True)
class Window:
    """`name` of RANGES, or "" where a beginning or an end was chosen. What is wrong in the address is in `form.errors`
    and counts as not asked for."""

    form: WindowForm
    name: str
    span: Span
    ranges: tuple[str, ...] = tuple(RANGES)

    @property
    def status(self) -> int:
        """The HTTP status of a page that shows it."""
        return 400 if self.form.errors else 200


def window_of(request: HttpRequest, job: Job, now: datetime, default: str = DEFAULT_RANGE) -> Window:
    form = WindowForm(request.GET)
    form.is_valid()
    since, until = form.cleaned_data.get("since"), form.cleaned_data.get("until")
    chosen = request.GET.get("range", default)
    name = chosen if chosen in RANGES else default
    span = _from_to(job, since, until, now) if since or until else span_of(job, name, now)
    return Window(form, "" if since or until else name, replace(span, run=form.cleaned_data.get("run")))


def _from_to(job: Job, since: datetime | None, until: datetime | None, now: datetime) -> Span:
    """What lies after now is cut off; where that leaves nothing, the shortest time before its end is shown."""
    end = min(until or now, now)
    start = since or first_checkpoint_at(job) or end - SHORTEST
    return Span(min(start, end - SHORTEST), end) if start >= end else Span(start, end)
