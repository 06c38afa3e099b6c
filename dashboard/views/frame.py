"""The frame of every page, where it renews itself."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.access.guard import reach_at
from dashboard.templatetags.shell import frame_of


def nav(request: HttpRequest) -> HttpResponse:
    """The pages' links with how much waits behind them."""
    return render(
        request, "parts/nav.html", {"frame": frame_of(reach_at(request)), "section": request.GET.get("section", "")}
    )
