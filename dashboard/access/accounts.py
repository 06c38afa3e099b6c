"""Administration of accounts. Each action writes an audit entry; the last administrator cannot be removed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from dashboard.access import tokens
from dashboard.access.roles import Role, role_of
from monitoring import audit
from monitoring.models import Account, ApiToken, AuditEntry, Cluster, Grant

# What people call the roles that `role_name` returns.
ROLE_LABELS = {
    "nothing": gettext_noop("grants only"),
    "viewer": gettext_noop("viewer"),
    "operator": gettext_noop("operator"),
    "admin": gettext_noop("administrator"),
}


class NotAllowed(Exception):
    """The action is not allowed and changed nothing. The message gives the reason."""


def role_name(user: User) -> str:
    """Return the role as a choice of the form: nothing, viewer, operator or admin."""
    if user.is_superuser:
        return "admin"
    account = getattr(user, "account", None)
    if account is not None and account.granted_only:
        return "nothing"
    return "operator" if user.is_staff else "viewer"


def role_label(user: User) -> str:
    """Return the role as it is shown. It is English; pages translate it."""
    return ROLE_LABELS[role_name(user)]


@transaction.atomic
def create(username: str, email: str, password: str | None, role: str, by: str) -> User:
    """Create an account. Without a password, its owner can log in only through the OpenID Connect provider.

    Raises:
        NotAllowed: there is an account with this name.
    """
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, email, password)
    except IntegrityError:
        raise NotAllowed(_("An account with this name already exists.")) from None
    _set_role(user, role)
    audit.record(by, "user.create", _target(user), now={"role": role, "email": email})
    return user


@transaction.atomic
def change(user: User, role: str, email: str, by: str) -> bool:
    """Change the role and mail address of an account. Return False if nothing differs.

    Raises:
        NotAllowed: the account is the last administrator and would get another role.
    """
    was = {"role": role_name(user), "email": user.email}
    now = {"role": role, "email": email}
    if was == now:
        return False
    if was["role"] == "admin" and role != "admin":
        _require_another_administrator(user)
    user.email = email
    user.save(update_fields=["email"])
    _set_role(user, role)
    audit.record(by, "user.change", _target(user), was=was, now=now)
    return True


@transaction.atomic
def set_active(user: User, active: bool, by: str, now: datetime) -> None:
    """Activate or deactivate an account. Deactivating it ends its sessions and revokes its tokens.

    Raises:
        NotAllowed: the account is the last administrator, or it is already active or inactive.
    """
    if not active and user.is_superuser:
        _require_another_administrator(user)
    if not User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active):
        already = _("%(user)s is already active.") if active else _("%(user)s is already inactive.")
        raise NotAllowed(already % {"user": user})
    if not active:
        end_access(user, by, now)
    audit.record(by, "user.activate" if active else "user.deactivate", _target(user))


@transaction.atomic
def set_password(user: User, password: str, by: str, now: datetime) -> None:
    user.set_password(password)
    user.save(update_fields=["password"])
    end_access(user, by, now)
    audit.record(by, "user.password", _target(user))


@transaction.atomic
def log_out_everywhere(user: User, by: str, now: datetime) -> None:
    end_access(user, by, now)
    audit.record(by, "user.log-out", _target(user))


def end_access(user: User, by: str, now: datetime) -> None:
    """End every session and revoke every API token. The caller holds the transaction."""
    Account.objects.update_or_create(user=user, defaults={"signed_out_at": now})
    for token in ApiToken.objects.filter(user=user, revoked_at=None):
        tokens.revoke(token, by, now)


@transaction.atomic
def require_deletable(user: User, by: User) -> None:
    """Raise NotAllowed if `user` is `by` or the last administrator."""
    if user.pk == by.pk:
        raise NotAllowed(_("You cannot delete your own account. Ask another administrator."))
    if user.is_superuser:
        _require_another_administrator(user)


@transaction.atomic
def delete(user: User, by: User) -> None:
    """Delete an account with its sessions, tokens, grants and saved views. Its audit entries keep its name.

    Raises:
        NotAllowed: see `require_deletable`.
    """
    require_deletable(user, by)
    was = {"role": role_name(user), "email": user.email}
    audit.record(by.get_username(), "user.delete", _target(user), was=was)
    user.delete()


@transaction.atomic
def grant(user: User, role: str, cluster: Cluster | None, selector: str, by: str, now: datetime) -> Grant:
    """Grant a role on a scope. Raise NotAllowed if the account already has a grant with this scope."""
    try:
        with transaction.atomic():
            made = Grant.objects.create(
                user=user, role=role, cluster=cluster, selector=selector, created_at=now, created_by=by
            )
    except IntegrityError:
        raise NotAllowed(_("The account already has a grant with this scope. Revoke it first.")) from None
    _record(by, "user.grant", made, "now")
    return made


@transaction.atomic
def revoke_grant(found: Grant, by: str) -> None:
    _record(by, "user.ungrant", found, "was")
    found.delete()


def _record(by: str, action: str, changed: Grant, when: str) -> None:
    scope = changed.scope
    details: dict[str, Any] = {when: {"role": changed.role, "on": str(scope)}, "on_value": scope.as_json()}
    audit.record(by, action, _target(changed.user), **details)


def audit_entries(user: User) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(target=_target(user))


def valid_tokens(user: User, now: datetime) -> int:
    return ApiToken.objects.filter(user=user, revoked_at=None).exclude(expires_at__lte=now).count()


def _set_role(user: User, role: str) -> None:
    user.is_staff, user.is_superuser = role in ("operator", "admin"), role == "admin"
    user.save(update_fields=["is_staff", "is_superuser"])
    Account.objects.update_or_create(user=user, defaults={"granted_only": role == "nothing"})


def _require_another_administrator(user: User) -> None:
    """Raise NotAllowed if `user` is the only active administrator.

    The rows are locked, so that two administrators who demote each other at the same time cannot both succeed.
    """
    found = User.objects.select_for_update().filter(is_superuser=True, is_active=True).order_by("pk")
    if not set(found.values_list("pk", flat=True)) - {user.pk}:
        only = _("%(user)s is the only active administrator. First make another account an administrator.")
        raise NotAllowed(only % {"user": user})


def _target(user: User) -> str:
    return f"user {user.get_username()}"


def is_only_administrator(user: User) -> bool:
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    return role_of(user) is Role.ADMIN and not others.exists()
