"""A JSON column whose secrets are sealed within it; Python sees the plain values.

What is a secret, checkpointing.masking decides, as it does for pages. All else can be read and looked up in the
database. A secret that no key opens stays sealed in the value, so rows can be read and saved without the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from monitoring.masking import mask_launch
from monitoring.secret import PREFIX, SecretUnreadable, seal, unseal

# In brackets: what follows a secret in its text may look like a part of the sealed one.
SEALED = re.compile(rf"<(?P<token>{PREFIX}[A-Za-z0-9_=-]+)>")


class SealedLaunchField(models.JSONField):
    """A launch record, or None."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        plain = super().from_db_value(value, expression, connection)
        return plain if isinstance(value, str) and PREFIX not in value else opened(plain)

    def get_prep_value(self, value: Any) -> Any:
        return sealed(value) if isinstance(value, Mapping) else super().get_prep_value(value)

    def value_to_string(self, obj: models.Model) -> Any:
        """For a dump, which holds no plain secret either."""
        return self.get_prep_value(self.value_from_object(obj))


def sealed(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with every secret sealed that is not sealed yet."""
    return mask_launch(launch, _seal)


def opened(value: Any) -> Any:
    """Return a JSON value in which what is sealed is plain, as far as a key opens it."""
    return with_sealed(value, _open)


def has_unreadable(launch: Mapping[str, Any] | None) -> bool:
    """Return whether a record, as Python sees it, holds a secret that no key opened."""
    return bool(with_sealed(launch, lambda token: "") != launch)


def with_sealed(value: Any, replace: Callable[[str], str]) -> Any:
    """Return a JSON value with what `replace` makes of each sealed text within it."""
    match value:
        case str() if PREFIX in value:
            return SEALED.sub(lambda found: replace(found["token"]), value)
        case Mapping():
            return {key: with_sealed(each, replace) for key, each in value.items()}
        case list():
            return [with_sealed(each, replace) for each in value]
    return value


def _seal(_key: str, secret: Any) -> Any:
    """Only texts are sealed: nothing else can be typed. Without any key of its own, an installation stores them as they
    are: recording how a job was started must not stop polling."""
    if not isinstance(secret, str) or SEALED.search(secret):
        return secret
    try:
        return f"<{seal(secret)}>"
    except ImproperlyConfigured:
        return secret


def _open(token: str) -> str:
    try:
        return unseal(token)
    except SecretUnreadable:
        return f"<{token}>"
