"""Seal (encrypt) every stored secret again with the first key.

Rows that change meanwhile are skipped: their change was already sealed with the first key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db.models import Field, Model, QuerySet, TextField
from django.db.models.functions import Cast

from monitoring.models.sealed_json import SEALED, SealedLaunchField
from monitoring.models.secret_field import SecretField
from monitoring.secret import PREFIX, Secret, SecretUnreadable, resealed, unseal

_STORED = "stored_text"  # annotation with the column's stored text, because the field itself returns a Secret


@dataclass(frozen=True)
class StoredSecret:
    """A stored secret. `stored` is the column's text: it is sealed, or a launch record with sealed parts."""

    row: Model
    field: str
    stored: str

    def __str__(self) -> str:
        return f"{self.row._meta.verbose_name} {self.row}: {self.field}"

    @property
    def in_launch(self) -> bool:
        return isinstance(self.row._meta.get_field(self.field), SealedLaunchField)

    def with_sealed(self, replace: Callable[[str], str]) -> str:
        """Return the column's text in which `replace` has replaced each sealed text."""
        if self.in_launch:
            return SEALED.sub(lambda found: f"<{replace(found['token'])}>", self.stored)
        return replace(self.stored)


@dataclass(frozen=True)
class Rekeyed:
    """The result. `unreadable`: the secrets that no key can decrypt, with the reason; they stay unchanged."""

    sealed: int
    unreadable: tuple[str, ...]


def rekey() -> Rekeyed:
    sealed, unreadable = 0, []
    for secret in stored_secrets():
        try:
            sealed += _replace(secret, secret.with_sealed(resealed))
        except SecretUnreadable as error:
            unreadable.append(f"{secret}: {error}")
    return Rekeyed(sealed, tuple(unreadable))


def unreadable_secrets() -> list[str]:
    found = []
    for secret in stored_secrets():
        try:
            secret.with_sealed(unseal)
        except SecretUnreadable as error:
            found.append(f"{secret}: {error}")
    return found


def stored_secrets() -> Iterator[StoredSecret]:
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            for row in _rows_with_secret(model, field):
                yield StoredSecret(row, field.name, getattr(row, _STORED))


def _rows_with_secret(model: type[Model], field: Field[Any, Any]) -> QuerySet[Model]:
    rows = _with_stored(model, field.name).order_by("pk")
    match field:
        case SecretField():
            return rows.exclude(**{_STORED: ""})
        case SealedLaunchField():
            return rows.filter(**{f"{_STORED}__contains": f"<{PREFIX}"})
    return rows.none()


def _replace(secret: StoredSecret, sealed: str) -> int:
    rows = _with_stored(type(secret.row), secret.field)
    unchanged = rows.filter(**{"pk": secret.row.pk, _STORED: secret.stored})
    value = json.loads(sealed) if secret.in_launch else Secret.from_stored(sealed)
    return unchanged.update(**{secret.field: value})


def _with_stored(model: type[Model], field: str) -> QuerySet[Model]:
    rows: QuerySet[Model] = model._default_manager.annotate(**{_STORED: Cast(field, TextField())})
    return rows
