"""The three roles, stored in Django's flags is_superuser and is_staff."""

from __future__ import annotations

from enum import IntEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser


class Role(IntEnum):
    """Roles in ascending order. Each includes the rights of the roles before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return {Role.VIEWER: "viewer", Role.OPERATOR: "operator", Role.ADMIN: "administrator"}[self]


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """Return the account's role everywhere, or None if the account is anonymous or not active."""
    if not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    return Role.OPERATOR if getattr(user, "is_staff", False) else Role.VIEWER
