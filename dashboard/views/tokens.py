"""The API tokens of the own account: the list, creation and revocation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from dashboard.access import tokens as access
from dashboard.access.confirming import NotConfirmed, confirm, logged_in_recently
from dashboard.access.guard import reach_at
from dashboard.forms.token import TokenForm
from dashboard.views.confirmation import Confirmation, ask
from dashboard.views.me import own_user
from monitoring.models import ApiToken

MOST_SHOWN = 100


@never_cache
@sensitive_post_parameters()
def tokens(request: HttpRequest) -> HttpResponse:
    """List the tokens, or create one on POST. Its secret is shown only in the response."""
    user = own_user(request)
    if request.method != "POST":
        return _page(request, user, _form(user, request))
    form, now = _form(user, request, request.POST), timezone.now()
    if not form.is_valid():
        return _page(request, user, form, status=422)
    name, by = form.cleaned_data["name"], user.get_username()
    try:
        confirm(request, user, form.typed_password, now)
        made = access.make(user, name, form.may_write, form.expires_at(now), by, now, form.reports_for)
    except NotConfirmed as refused:
        form.add_error("password" if "password" in form.fields else None, str(refused))
    except access.BadToken as problem:
        form.add_error(problem.field, problem.allowed)
    else:
        return _page(request, user, _form(user, request), made=made)
    return _page(request, user, form, status=422)


def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or revoke the token on POST."""
    token = get_object_or_404(ApiToken, pk=pk, user=request.user.pk)
    if request.method != "POST":
        return ask_to_revoke(request, token, reverse("tokens"), _("API tokens"), "tokens")
    if access.revoke(token, request.user.get_username(), timezone.now()):
        messages.success(request, _("Token %(name)s revoked. Requests with it are refused.") % {"name": token.name})
    else:
        messages.warning(request, _("Token %(name)s was already revoked.") % {"name": token.name})
    return redirect("tokens")


def ask_to_revoke(request: HttpRequest, token: ApiToken, back: str, back_title: str, section: str) -> HttpResponse:
    question = _("Revoke the token “%(name)s”?") % {"name": token.name}
    consequences = [_("Requests with the token are refused."), _("A revoked token cannot be restored.")]
    return ask(request, Confirmation(question, consequences, _("Revoke token"), back, back_title, section))


def _form(user: User, request: HttpRequest, typed: Any = None) -> TokenForm:
    return TokenForm(typed, asks_password=user.has_usable_password(), reach=reach_at(request), label_suffix="")


def _page(
    request: HttpRequest, user: User, form: TokenForm, *, made: access.CreatedToken | None = None, status: int = 200
) -> HttpResponse:
    now = timezone.now()
    own = ApiToken.objects.filter(user=user).select_related("reports_for")[:MOST_SHOWN]
    rows = [(token, _state(token, now)) for token in own]
    context: dict[str, Any] = {
        "form": form,
        "rows": rows,
        "made": made,
        "must_log_in_again": not user.has_usable_password() and not logged_in_recently(request, now),
        "oidc": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "section": "tokens",
    }
    return render(request, "me/tokens.html", context, status=status)


def _state(token: ApiToken, now: Any) -> str:
    if token.revoked_at is not None:
        return gettext_noop("revoked")
    return gettext_noop("valid") if token.is_valid(now) else gettext_noop("expired")
