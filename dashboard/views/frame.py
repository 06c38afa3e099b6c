"""The navigation, which every page refreshes."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.access.guard import reach_at
from dashboard.templatetags.shell import frame_of


def nav(request: HttpRequest) -> HttpResponse:
    """Render the links of the navigation with their counts, such as that of unresolved incidents."""
    return render(
        request, "parts/nav.html", {"frame": frame_of(reach_at(request)), "section": request.GET.get("section", "")}
    )
