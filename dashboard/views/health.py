"""Liveness, health and metrics of Waymark, for load balancers, Prometheus and people."""

from __future__ import annotations

import hmac
from ipaddress import ip_address

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from dashboard.queries.health import read_health
from monitoring.metrics import CONTENT_TYPE, exposition
from monitoring.selfwatch.own_facts import Facts, gather
from monitoring.selfwatch.verdict import Finding, Verdict, judge

_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")


@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """Report that this process answers. The database is not checked, because a restart would not repair it."""
    return JsonResponse({"status": "up"})


@login_not_required
def health(request: HttpRequest) -> JsonResponse:
    """Report Waymark's health, with status 503 while Waymark cannot monitor the jobs.

    Every client sees which parts have a problem. Only a client that may read the metrics sees the sentences.
    """
    _, verdict = read_health_facts()
    open_to_all = not _may_scrape(request)
    body = {
        "status": "healthy" if verdict.healthy else "blind",
        "problems": [_finding_json(finding, short=open_to_all) for finding in verdict.problems],
        "warnings": [_finding_json(finding, short=open_to_all) for finding in verdict.warnings],
    }
    return JsonResponse(body, status=200 if verdict.healthy else 503, headers={"Cache-Control": "no-store"})


@login_not_required
def metrics(request: HttpRequest) -> HttpResponse:
    if not _may_scrape(request):
        text = "Metrics are available from this machine, or with the bearer token in WAYMARK_METRICS_TOKEN.\n"
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(exposition(*read_health_facts()), content_type=CONTENT_TYPE)


def page(request: HttpRequest) -> HttpResponse:
    facts, verdict = read_health_facts()
    live = request.headers.get("HX-Target") == "health-live"
    context = {"health": read_health(facts, verdict), "section": "health"}
    return render(request, "system/health_live.html" if live else "system/health.html", context)


def read_health_facts() -> tuple[Facts, Verdict]:
    facts = gather()
    return facts, judge(facts, settings.BLIND_AFTER_S)


def _finding_json(finding: Finding, *, short: bool) -> dict[str, str]:
    return {"part": finding.part} if short else {"part": finding.part, "text": str(finding.reason)}


def _may_scrape(request: HttpRequest) -> bool:
    """Return whether the client may read the metrics.

    The client must send the token if one is configured. Otherwise it must connect from this machine without a proxy.
    """
    given = request.headers.get("Authorization", "")
    if settings.METRICS_TOKEN:
        return hmac.compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    return _is_loopback(request.META.get("REMOTE_ADDR", "")) and not any(name in request.META for name in _FORWARDED)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # a unix socket has no address, and its client is a proxy
        return False
