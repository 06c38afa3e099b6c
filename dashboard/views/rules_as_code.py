"""Export rules and channels as YAML, and import YAML after a preview of the changes."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import ngettext

from dashboard.access.guard import access_of, actor_of
from dashboard.access.roles import Role
from dashboard.as_code.export import export
from dashboard.as_code.importing import NotApplied, apply, removable
from dashboard.as_code.lines import LONGEST
from dashboard.as_code.plan import Plan, plan
from dashboard.views.access import action


def as_code(request: HttpRequest) -> HttpResponse:
    return _import(request) if request.method == "POST" else _page(request, {"text": ""})


def download(request: HttpRequest) -> HttpResponse:
    headers = {"Content-Disposition": 'attachment; filename="waymark-rules.yaml"'}
    return HttpResponse(export(), content_type="application/yaml; charset=utf-8", headers=headers)


@action
def _import(request: HttpRequest) -> HttpResponse:
    text, prune = _text(request), request.POST.get("prune") == "on"
    may = access_of(request).may(Role.ADMIN)
    if request.POST.get("step") != "apply":
        return _show(request, text, plan(text, may_allow_private=may), prune=prune)
    who = actor_of(request)
    try:
        changes = apply(text, who, timezone.now(), prune=prune, may_allow_private=may)
    except NotApplied as refused:
        return _show(request, text, refused.plan, prune=prune)
    messages.success(
        request,
        ngettext("Imported: %(number)s change.", "Imported: %(number)s changes.", len(changes))
        % {"number": len(changes)},
    )
    return redirect("rules")


def _text(request: HttpRequest) -> str:
    """Return the submitted text, or the content of the uploaded file."""
    sent = request.FILES.get("file")
    if sent is not None and not isinstance(sent, list):
        return str(sent.read(LONGEST + 1).decode("utf-8", errors="replace"))
    return request.POST.get("text", "").replace("\r\n", "\n")


def _show(request: HttpRequest, text: str, made: Plan, *, prune: bool) -> HttpResponse:
    context = {"text": text, "plan": made, "prune": prune, "removable": removable(made)}
    return _page(request, context, status=422 if made.problems else 200)


def _page(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    return render(request, "rules/code.html", {"section": "rules", "export": export(), **context}, status=status)
