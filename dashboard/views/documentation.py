"""The view of a page of the documentation."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.documentation import as_html, documents


def document(request: HttpRequest, document: str) -> HttpResponse:
    if document not in documents():
        raise Http404
    title, text = as_html(document)
    context = {"section": "documentation", "document": document, "title": title, "text": text}
    return render(request, "documentation.html", context)
