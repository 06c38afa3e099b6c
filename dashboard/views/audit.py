"""The audit log with its filters, as a page and as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from dashboard.forms.audit import AuditForm
from dashboard.queries.audit import find_entries
from monitoring.models import AuditEntry

COLUMNS = ("at", "actor", "action", "target", "reason", "details")
# Spreadsheet programs treat a cell that begins with one of these characters as a formula and execute it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def audit(request: HttpRequest) -> HttpResponse:
    form = AuditForm(request.GET, label_suffix="")
    chosen = form.chosen()
    page = Paginator(find_entries(chosen), 50).get_page(request.GET.get("page"))
    context = {"page": page, "form": form, "narrow": chosen.is_narrow, "section": "audit"}
    return render(request, "system/audit.html", context, status=200 if form.is_valid() else 422)


def audit_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Return all matching entries as CSV, newest first."""
    entries = find_entries(AuditForm(request.GET).chosen()).iterator(2_000)
    headers = {"Content-Disposition": 'attachment; filename="waymark-audit.csv"'}
    return StreamingHttpResponse(_lines(entries), content_type="text/csv; charset=utf-8", headers=headers)


class _Echo:
    def write(self, line: str) -> str:
        return line


def _lines(entries: Iterator[AuditEntry]) -> Iterator[str]:
    writer: Any = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for entry in entries:
        details = json.dumps(entry.details, ensure_ascii=False, sort_keys=True)
        cells = (entry.at.isoformat(), entry.actor, entry.action, entry.target, entry.reason, details)
        yield writer.writerow([_plain(cell) for cell in cells])


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
