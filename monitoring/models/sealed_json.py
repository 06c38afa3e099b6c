"""A JSON column that stores its secrets sealed (encrypted). Python sees the plain values.

checkpointing.masking decides which values are secrets, as for pages. All other values can be read and searched in the
database. A secret that no key can decrypt stays sealed in the value, so rows can be read and saved without the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from monitoring.masking import mask_launch
from monitoring.secret import PREFIX, SecretUnreadable, seal, unseal

# The brackets mark the end of a sealed secret, because the text after it may look like a part of it.
SEALED = re.compile(rf"<(?P<token>{PREFIX}[A-Za-z0-9_=-]+)>")


class SealedLaunchField(models.JSONField):
    """A launch record, or None."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        plain = super().from_db_value(value, expression, connection)
        return plain if isinstance(value, str) and PREFIX not in value else opened(plain)

    def get_prep_value(self, value: Any) -> Any:
        return sealed(value) if isinstance(value, Mapping) else super().get_prep_value(value)

    def value_to_string(self, obj: models.Model) -> Any:
        """Return the sealed value for a dump, so that the dump contains no plain secrets."""
        return self.get_prep_value(self.value_from_object(obj))


def sealed(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with all its secrets sealed."""
    return mask_launch(launch, _seal)


def opened(value: Any) -> Any:
    """Return a JSON value in which all sealed secrets are plain, except those that no key can decrypt."""
    return with_sealed(value, _open)


def has_unreadable(launch: Mapping[str, Any] | None) -> bool:
    """Return whether a record, as Python sees it, contains a secret that no key could decrypt."""
    return bool(with_sealed(launch, lambda token: "") != launch)


def with_sealed(value: Any, replace: Callable[[str], str]) -> Any:
    """Return a JSON value in which `replace` has replaced each sealed text."""
    match value:
        case str() if PREFIX in value:
            return SEALED.sub(lambda found: replace(found["token"]), value)
        case Mapping():
            return {key: with_sealed(each, replace) for key, each in value.items()}
        case list():
            return [with_sealed(each, replace) for each in value]
    return value


def _seal(_key: str, secret: Any) -> Any:
    """Seal a text; other values cannot be typed by people and stay plain.

    Without a key in the settings, the text stays plain, too: storing a launch record must not stop polling.
    """
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
