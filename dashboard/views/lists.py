"""The audit log."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from monitoring.models import AuditEntry


def audit(request: HttpRequest) -> HttpResponse:
    found = AuditEntry.objects.all()
    text = request.GET.get("q", "").strip()[:200]
    if text:
        found = found.filter(target__icontains=text) | found.filter(actor__icontains=text)
    page = Paginator(found, 50).get_page(request.GET.get("page"))
    return render(request, "system/audit.html", {"page": page, "text": text, "section": "audit"})
