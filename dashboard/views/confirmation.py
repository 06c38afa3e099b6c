"""The page that asks a person to confirm a deletion or a revocation. All such pages without input use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


@dataclass(frozen=True)
class Confirmation:
    """The texts of the page. `back` is the URL of the page from which the person came, with the title `back_title`."""

    question: str
    consequences: Sequence[str]
    button: str
    back: str
    back_title: str
    section: str


def ask(request: HttpRequest, confirmation: Confirmation) -> HttpResponse:
    """Render the page. Its form sends a POST request to the same URL."""
    return render(request, "parts/confirm.html", {"confirmation": confirmation, "section": confirmation.section})
