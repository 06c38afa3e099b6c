"""The mails that the embedded mail sink has stored instead of sending them."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.stack.mailbox import NoSuchMail, list_mails, read_mail


def mails(request: HttpRequest) -> HttpResponse:
    page = Paginator(list_mails(_mailbox()), 50).get_page(request.GET.get("page"))
    return render(request, "system/mails.html", {"page": page, "section": "mail"})


def mail(request: HttpRequest, mail_id: str) -> HttpResponse:
    try:
        found, text = read_mail(_mailbox(), mail_id)
    except NoSuchMail:
        raise Http404("This mail is no longer stored.") from None
    return render(request, "system/mail.html", {"mail": found, "text": text, "section": "mail"})


def _mailbox() -> Path:
    if settings.MAILBOX_DIR is None:
        raise Http404("Waymark sends its mail through a server and stores no mail here.")
    return Path(settings.MAILBOX_DIR)
