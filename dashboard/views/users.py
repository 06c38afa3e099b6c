"""Accounts, roles and grants, for administrators."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters

from dashboard.access import accounts, tokens
from dashboard.access.guard import actor_of
from dashboard.audit_texts import actor_name
from dashboard.forms.account import GrantForm, PasswordForm, RoleForm, UserForm
from dashboard.forms.editing import for_editing, newer_than_shown, newest_key
from dashboard.views.access import admin_action, admin_required
from dashboard.views.confirmation import Confirmation, ask
from dashboard.views.me import own_user
from dashboard.views.tokens import ask_to_revoke
from monitoring.models import ApiToken, Grant
from monitoring.units import age_text

PAGE_SIZE = 50
RECENT = 12


@sensitive_post_parameters("password")
@admin_required
def users(request: HttpRequest) -> HttpResponse:
    """List the accounts, or create one on POST."""
    if request.method != "POST":
        return _list(request, UserForm(User()))
    form = UserForm(User(), request.POST)
    if not form.is_valid():
        return _list(request, form, 422)
    typed = form.cleaned_data
    try:
        made = accounts.create(typed["username"], typed["email"], typed["password"], typed["role"], actor_of(request))
    except accounts.NotAllowed as refused:
        form.add_error("username", str(refused))
        return _list(request, form, 422)
    messages.success(request, _("User %(made)s created.") % {"made": made})
    return redirect("user", made.pk)


@admin_required
@transaction.atomic
def user(request: HttpRequest, pk: int) -> HttpResponse:
    """Show an account, or change its role and mail address on POST."""
    if request.method != "POST":
        return _show_user(request, _find(pk))
    found = _find_for_editing(pk)
    form = RoleForm(found, request.POST)
    if not form.is_valid():
        return _show_user(request, found, 422, form=form)
    try:
        changed = accounts.change(found, form.cleaned_data["role"], form.cleaned_data["email"], actor_of(request))
    except accounts.NotAllowed as refused:
        form.add_error("role", str(refused))
        return _show_user(request, _find(pk), 422, form=form)
    messages.success(request, _("Saved.") if changed else _("No change."))
    return redirect("user", pk)


@admin_action
def activate(request: HttpRequest, pk: int) -> HttpResponse:
    """Activate or deactivate an account, by the parameter `active` ("yes" or "no")."""
    found, active = _find(pk), request.POST.get("active") == "yes"
    try:
        accounts.set_active(found, active, actor_of(request), timezone.now())
    except accounts.NotAllowed as refused:
        messages.error(request, str(refused))
    else:
        again = _("%(found)s can log in again.")
        no_more = _("%(found)s can no longer log in. All sessions ended, and all API tokens are revoked.")
        messages.success(request, (again if active else no_more) % {"found": found})
    return redirect("user", pk)


@sensitive_post_parameters("password")
@admin_action
@transaction.atomic
def reset_password(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find_for_editing(pk)
    form = PasswordForm(request.POST, user=found, label_suffix="")
    if form.is_valid() and (newer := _since_shown(request, found, "user.password")):
        text = _(
            "%(who)s set another password %(age)s ago, after this page was loaded. To replace it, enter yours again."
        )
        form.add_error(None, text % newer)
    if not form.is_valid():
        return _show_user(request, found, 422, password_form=form)
    accounts.set_password(found, form.cleaned_data["password"], actor_of(request), timezone.now())
    messages.success(
        request,
        _("New password of %(found)s set. All sessions ended, and all API tokens are revoked.") % {"found": found},
    )
    return redirect("user", pk)


@admin_action
@transaction.atomic
def log_out(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find_for_editing(pk)
    if newer := _since_shown(request, found, "user.log-out", "user.password", "user.deactivate"):
        text = _(
            "Nothing was changed. %(who)s ended all sessions %(age)s ago, after this page was loaded, and revoked all "
            "API tokens. To end newer ones, repeat the action."
        )
        messages.error(request, text % newer)
        return redirect("user", pk)
    accounts.log_out_everywhere(found, actor_of(request), timezone.now())
    messages.success(request, _("All sessions of %(found)s ended, and all API tokens are revoked.") % {"found": found})
    return redirect("user", pk)


@admin_required
@transaction.atomic
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the account on POST."""
    found = _find_for_editing(pk) if request.method == "POST" else _find(pk)
    name = found.get_username()
    try:
        accounts.require_deletable(found, by=own_user(request))
        if request.method == "POST":
            accounts.delete(found, by=own_user(request))
    except accounts.NotAllowed as refused:
        messages.error(request, str(refused))
        return redirect("user", pk)
    if request.method == "POST":
        messages.success(request, _("Account %(name)s deleted.") % {"name": name})
        return redirect("users")
    context = {
        "person": found,
        "word": accounts.role_label(found),
        "tokens": accounts.valid_tokens(found, timezone.now()),
        "grants": found.grants.count(),
        "section": "users",
    }
    return render(request, "users/delete.html", context)


@admin_action
def add_grant(request: HttpRequest, pk: int) -> HttpResponse:
    found, form = _find(pk), GrantForm(request.POST, label_suffix="")
    if form.is_valid():
        typed = form.cleaned_data
        try:
            accounts.grant(found, typed["role"], typed["cluster"], typed["selector"], actor_of(request), timezone.now())
        except accounts.NotAllowed as refused:
            form.add_error("selector", str(refused))
    if not form.is_valid():
        return _show_user(request, found, 422, grant_form=form)
    messages.success(request, _("Grant added."))
    return redirect("user", pk)


@admin_required
@transaction.atomic
def take_grant(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or revoke the grant on POST."""
    rows = Grant.objects.select_related("user", "cluster")
    found = get_object_or_404(for_editing(rows) if request.method == "POST" else rows, pk=pk)
    if request.method != "POST":
        question = _("Revoke the grant of %(user)s: %(found)s?") % {"user": found.user, "found": found}
        consequences = [_("The account loses the rights that only this grant gives.")]
        back, name = reverse("user", args=[found.user_id]), found.user.get_username()
        return ask(request, Confirmation(question, consequences, _("Revoke grant"), back, name, "users"))
    accounts.revoke_grant(found, actor_of(request))
    messages.success(request, _("Grant of %(user)s revoked: %(found)s.") % {"user": found.user, "found": found})
    return redirect("user", found.user_id)


@admin_required
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or revoke the token on POST."""
    found = get_object_or_404(ApiToken.objects.select_related("user"), pk=pk)
    if request.method != "POST":
        back = reverse("user", args=[found.user_id])
        return ask_to_revoke(request, found, back, found.user.get_username(), "users")
    if tokens.revoke(found, actor_of(request), timezone.now()):
        messages.success(request, _("Token %(name)s revoked.") % {"name": found.name})
    else:
        messages.warning(request, _("Token %(name)s was already revoked.") % {"name": found.name})
    return redirect("user", found.user_id)


def _find(pk: int) -> User:
    return get_object_or_404(User.objects.select_related("account"), pk=pk)


def _find_for_editing(pk: int) -> User:
    """Lock the account and all administrators, always in the same order. A change of the role may need all of them."""
    rows = User.objects.filter(Q(pk=pk) | Q(is_superuser=True)).select_related("account").order_by("pk")
    found = {each.pk: each for each in for_editing(rows)}
    if pk not in found:
        raise Http404
    return found[pk]


def _since_shown(request: HttpRequest, found: User, *actions: str) -> dict[str, str] | None:
    """Return who carried out one of the actions after the page was loaded, and how long ago. None: nobody."""
    entry = newer_than_shown(accounts.audit_entries(found).filter(action__in=actions), request.POST).first()
    return {"who": actor_name(entry.actor), "age": age_text(timezone.now() - entry.at)} if entry else None


def _list(request: HttpRequest, form: UserForm, status: int = 200) -> HttpResponse:
    text = request.GET.get("q", "").replace("\0", "").strip()[:200]
    found = (
        User.objects.select_related("account").prefetch_related("grants__cluster").order_by("-is_active", "username")
    )
    if text:
        found = found.filter(Q(username__icontains=text) | Q(email__icontains=text))
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = [(each, accounts.role_label(each)) for each in page]
    context = {"page": page, "rows": rows, "form": form, "text": text, "section": "users"}
    return render(request, "users/list.html", context, status=status)


def _show_user(request: HttpRequest, found: User, status: int = 200, **forms: Any) -> HttpResponse:
    now, entries = timezone.now(), accounts.audit_entries(found)
    context = {
        "person": found,
        "own": found.pk == request.user.pk,
        "word": accounts.role_label(found),
        "form": RoleForm(found),
        "grant_form": GrantForm(label_suffix=""),
        "password_form": PasswordForm(user=found, label_suffix=""),
        "grants": found.grants.select_related("cluster"),
        "tokens": [
            each
            for each in found.api_tokens.filter(revoked_at=None).select_related("reports_for")
            if each.is_valid(now)
        ],
        "only_administrator": accounts.is_only_administrator(found),
        "entries": entries[:RECENT],
        "newest": newest_key(entries),
        "section": "users",
    }
    return render(request, "users/user.html", context | forms, status=status)
