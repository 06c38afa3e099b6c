"""The three roles, as Django's own flags hold them."""

from __future__ import annotations

from enum import IntEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser


class Role(IntEnum):
    """Each may what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return {Role.VIEWER: "viewer", Role.OPERATOR: "operator", Role.ADMIN: "administrator"}[self]


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """The role that the account has everywhere; None: nobody, or not active any more."""
    if not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    return Role.OPERATOR if getattr(user, "is_staff", False) else Role.VIEWER
