"""Seals every stored secret anew under the first key. Rows that change meanwhile are left to themselves: who changed
them sealed under the first key already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.apps import apps
from django.db.models import Model, QuerySet, TextField
from django.db.models.functions import Cast

from monitoring.models.secret_field import SecretField
from monitoring.secret import Secret, SecretUnreadable, resealed, unseal

_STORED = "stored_text"  # the column as it is, beside the Secret that the field makes of it


@dataclass(frozen=True)
class StoredSecret:
    row: Model
    field: str
    stored: str

    def __str__(self) -> str:
        return f"{self.row._meta.verbose_name} {self.row}: {self.field}"


@dataclass(frozen=True)
class Rekeyed:
    """`unreadable`: which secrets no key opens, and why; they stay as they are."""

    sealed: int
    unreadable: tuple[str, ...]


def rekey() -> Rekeyed:
    sealed, unreadable = 0, []
    for secret in stored_secrets():
        try:
            sealed += _replace(secret, resealed(secret.stored))
        except SecretUnreadable as error:
            unreadable.append(f"{secret}: {error}")
    return Rekeyed(sealed, tuple(unreadable))


def unreadable_secrets() -> list[str]:
    found = []
    for secret in stored_secrets():
        try:
            unseal(secret.stored)
        except SecretUnreadable as error:
            found.append(f"{secret}: {error}")
    return found


def stored_secrets() -> Iterator[StoredSecret]:
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, SecretField):
                for row in _with_stored(model, field.name).exclude(**{_STORED: ""}).order_by("pk"):
                    yield StoredSecret(row, field.name, getattr(row, _STORED))


def _replace(secret: StoredSecret, sealed: str) -> int:
    rows = _with_stored(type(secret.row), secret.field)
    unchanged = rows.filter(**{"pk": secret.row.pk, _STORED: secret.stored})
    return unchanged.update(**{secret.field: Secret.from_stored(sealed)})


def _with_stored(model: type[Model], field: str) -> QuerySet[Model]:
    rows: QuerySet[Model] = model._default_manager.annotate(**{_STORED: Cast(field, TextField())})
    return rows
