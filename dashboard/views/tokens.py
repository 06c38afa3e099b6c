"""A user's own tokens: made, shown once, revoked."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from dashboard.access import tokens as access
from dashboard.forms.token import TokenForm
from monitoring.models import ApiToken

MOST_SHOWN = 100


@never_cache
@sensitive_post_parameters()
def tokens(request: HttpRequest) -> HttpResponse:
    """GET lists them; POST makes one and answers with its secret, which is not to be had again."""
    if request.method != "POST":
        return _page(request, TokenForm(label_suffix=""))
    form, now = TokenForm(request.POST, label_suffix=""), timezone.now()
    if form.is_valid() and request.user.is_authenticated:
        name, by = form.cleaned_data["name"], request.user.get_username()
        try:
            made = access.make(request.user, name, form.may_write, form.expires_at(now), by, now)
        except access.BadToken as problem:
            form.add_error(problem.field, problem.allowed)
        else:
            return _page(request, TokenForm(label_suffix=""), made=made)
    return _page(request, form, status=422)


@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken, pk=pk, user=request.user.pk)
    if access.revoke(token, request.user.get_username(), timezone.now()):
        messages.success(request, _("%(name)s is revoked: what uses it is refused from now on.") % {"name": token.name})
    else:
        messages.warning(request, _("%(name)s was revoked already.") % {"name": token.name})
    return redirect("tokens")


def _page(request: HttpRequest, form: TokenForm, *, made: access.Made | None = None, status: int = 200) -> HttpResponse:
    now = timezone.now()
    rows = [(token, _state(token, now)) for token in ApiToken.objects.filter(user=request.user.pk)[:MOST_SHOWN]]
    context: dict[str, Any] = {"form": form, "rows": rows, "made": made, "section": "tokens"}
    return render(request, "me/tokens.html", context, status=status)


def _state(token: ApiToken, now: Any) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.is_valid(now) else "expired"
