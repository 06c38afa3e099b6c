"""The logs of a job's drivers. Only operators may read them, because they may contain the job's data."""

from __future__ import annotations

from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET

from dashboard.access.guard import require
from dashboard.access.roles import Role
from dashboard.language import rendered
from dashboard.queries.logs import LogPage, LogRequest, read_all, read_new_lines, read_page
from dashboard.views.access import operator_required
from dashboard.views.job import find_job, job_context
from monitoring.engine.errors import EngineError, NotFound
from monitoring.models import Engine, Job, Run

_RUNS = 20


@require_GET
@operator_required
def logs(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    context = job_context(job, "logs") | {"is_spark": job.cluster.engine == Engine.SPARK}
    run = _run(request, job)
    if run is not None and context["is_spark"]:
        asked = _log_request(request)
        found = read_page(run, asked)
        context |= {
            "log_run": run,
            "runs": job.runs.order_by("-number")[:_RUNS],
            "asked": asked,
            "trouble": found.reason if isinstance(found, EngineError) and not isinstance(found, NotFound) else "",
            "page": LogPage() if isinstance(found, EngineError) else found,
        }
    return render(request, "job/logs.html", context)


@require_GET
@operator_required
def new_lines(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the lines of a log after the reader's last position, for the live tail."""
    run, start = _required_run(request, pk), _whole(request.GET.get("start", ""))
    found = read_new_lines(run, request.GET.get("log", ""), start or 0)
    if isinstance(found, EngineError):
        return JsonResponse({"error": rendered(found.reason)}, status=502)
    return JsonResponse({"text": found.text, "end": found.end, "size": found.size})


@require_GET
def download(request: HttpRequest, pk: int) -> HttpResponseBase:
    require(request, Role.OPERATOR)
    run, name = _required_run(request, pk), request.GET.get("log", "")
    answer = StreamingHttpResponse(read_all(run, name), content_type="text/plain; charset=utf-8")
    file = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in run.job.name)[:60]
    safe = "".join(letter for letter in name if letter.isascii() and (letter.isalnum() or letter in "-."))
    answer.headers["Content-Disposition"] = f'attachment; filename="{_ascii(file)}-run-{run.number}-{safe}"'
    return answer


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace("?", "-")


def _run(request: HttpRequest, job: Job) -> Run | None:
    """Return the run with the requested number, else the run at the requested time, else the current run."""
    number, at = _whole(request.GET.get("run", "")), _moment(request.GET.get("at", ""))
    if number is not None:
        run: Run = get_object_or_404(job.runs.select_related("job__cluster"), number=number)
        return run
    earlier = job.runs.select_related("job__cluster").filter(started_at__lte=at) if at else job.runs.none()
    return earlier.order_by("-number").first() or job.current_run


def _required_run(request: HttpRequest, pk: int) -> Run:
    job = find_job(pk)
    run = _run(request, job) if job.cluster.engine == Engine.SPARK else None
    if run is None:
        raise Http404
    return run


def _log_request(request: HttpRequest) -> LogRequest:
    """Read the query string and ignore invalid parameters."""
    asked = request.GET
    return LogRequest(
        name=asked.get("log", "")[:40],
        at=_moment(asked.get("at", "")),
        start=_whole(asked.get("start", "")),
        search=asked.get("text", "").strip()[:200],
    )


def _moment(text: str) -> datetime | None:
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
