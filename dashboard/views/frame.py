"""The frame of every page, where it renews itself."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.templatetags.shell import shell


def nav(request: HttpRequest) -> HttpResponse:
    """The pages' links with how much waits behind them."""
    return render(request, "parts/nav.html", {"frame": shell(), "section": request.GET.get("section", "")})
