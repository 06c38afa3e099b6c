"""Export the configuration as YAML, show the drift, and apply YAML after a preview of the changes."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import ngettext

from dashboard.access.guard import access_of, actor_of
from dashboard.access.roles import Role
from dashboard.as_code.applying import NotApplied, apply
from dashboard.as_code.base import Plan
from dashboard.as_code.drift import drifts
from dashboard.as_code.export import export
from dashboard.as_code.lines import LONGEST
from dashboard.as_code.plan import plan
from dashboard.views.access import action


def as_code(request: HttpRequest) -> HttpResponse:
    return _apply(request) if request.method == "POST" else _page(request, {"text": ""})


def download(request: HttpRequest) -> HttpResponse:
    headers = {"Content-Disposition": 'attachment; filename="waymark.yaml"'}
    return HttpResponse(export(_role(request)), content_type="application/yaml; charset=utf-8", headers=headers)


@action
def _apply(request: HttpRequest) -> HttpResponse:
    text, prune, role = _text(request), request.POST.get("prune") == "on", _role(request)
    if request.POST.get("step") != "apply":
        return _show(request, text, plan(text, role), prune=prune)
    try:
        changes = apply(text, role, actor_of(request), timezone.now(), prune=prune)
    except NotApplied as refused:
        return _show(request, text, refused.plan, prune=prune)
    messages.success(
        request,
        ngettext("Applied: %(number)s change.", "Applied: %(number)s changes.", len(changes))
        % {"number": len(changes)},
    )
    return redirect("as-code")


def _role(request: HttpRequest) -> Role:
    return access_of(request).role or Role.VIEWER


def _text(request: HttpRequest) -> str:
    """Return the submitted text, or the content of the uploaded file."""
    sent = request.FILES.get("file")
    if sent is not None and not isinstance(sent, list):
        return str(sent.read(LONGEST + 1).decode("utf-8", errors="replace"))
    return request.POST.get("text", "").replace("\r\n", "\n")


def _show(request: HttpRequest, text: str, made: Plan, *, prune: bool) -> HttpResponse:
    context = {"text": text, "plan": made, "prune": prune, "removals": [step.change for step in made.removals]}
    return _page(request, context, status=422 if made.problems else 200)


def _page(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    role = _role(request)
    shown = {"section": "code", "export": export(role), "drifts": drifts(role) if role > Role.VIEWER else []}
    return render(request, "system/code.html", {**shown, **context}, status=status)
