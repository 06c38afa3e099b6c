"""Compare two checkpoints, two runs or two time ranges of a job."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard.forms.compare import CompareForm
from dashboard.queries.changes import read_changes
from dashboard.queries.comparison import compare as compare_sides
from dashboard.queries.history import unreadable_text
from dashboard.queries.series import Span
from dashboard.views.job import find_job, job_context
from monitoring.history.rows import Unreadable
from monitoring.models import Checkpoint


def compare(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the comparison of `a` and `b` in the query string, or an empty form if they are missing.

    The check boxes of the history send `pick` twice, in the order of the rows. The older checkpoint becomes `a`.
    """
    job = find_job(pk)
    if picked := sorted(request.GET.getlist("pick"), key=_place):
        address = reverse("job-compare", args=[job.pk])
        return redirect(f"{address}?{urlencode({'a': picked[0], 'b': ', '.join(picked[1:])})}")
    context = job_context(job, "history")
    form = CompareForm(job, request.GET or None)
    comparison, sides = None, []
    if form.is_valid():
        a, b = form.cleaned_data["a"], form.cleaned_data["b"]
        sides = [a, b]
        try:
            comparison = compare_sides(job, a, b, context["now"])
        except Unreadable as why:
            form.add_error("b", unreadable_text(why))
        if isinstance(a, Span) and isinstance(b, Span):
            between = Span(min(a.start, b.start), max(a.end, b.end))
            context["changes"] = [(change, "") for change in read_changes(job, between)]
    context |= {
        "form": form,
        "comparison": comparison,
        "sides": sides,
        "of_checkpoints": bool(sides) and isinstance(sides[0], Checkpoint),
        "of_ranges": bool(sides) and isinstance(sides[0], Span),
    }
    return render(request, "job/compare.html", context, status=400 if form.errors else 200)


def _place(text: str) -> list[int]:
    """Return the numbers of a text such as 2/285: the run and the ID of the checkpoint."""
    return [int(number) for number in re.findall(r"[0-9]{1,18}", text)]
