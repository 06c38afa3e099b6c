"""A text column that is stored sealed (encrypted). The attribute is a Secret; assigned plain text is sealed on save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.query_utils import DeferredAttribute

from monitoring.secret import PREFIX, Secret

if TYPE_CHECKING:
    _Text = models.TextField[Secret | str, Secret]
else:
    _Text = models.TextField


class _SecretAttribute(DeferredAttribute):
    field: SecretField

    def __set__(self, instance: models.Model, value: Secret | str | None) -> None:
        instance.__dict__[self.field.attname] = value if isinstance(value, Secret) else Secret(value or "")


class SecretField(_Text):
    """A field that cannot be searched by its text, because equal secrets have different stored texts."""

    descriptor_class = _SecretAttribute

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"blank": True, "default": "", **kwargs})

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, path, args, kwargs = super().deconstruct()
        for implied in ("blank", "default"):
            kwargs.pop(implied, None)
        return name, path, args, kwargs

    def from_db_value(self, value: str | None, *_: object) -> Secret:
        return Secret.from_stored(value or "")

    def to_python(self, value: Any) -> Secret:
        """Return a Secret from a plain text, or from a sealed text of a dump."""
        if isinstance(value, Secret):
            return value
        text = str(value or "")
        return Secret.from_stored(text) if text.startswith(PREFIX) else Secret(text)

    def get_prep_value(self, value: Any) -> Any:
        if hasattr(value, "resolve_expression"):
            return value
        return (value if isinstance(value, Secret) else Secret(value or "")).stored()

    def value_to_string(self, obj: models.Model) -> str:
        secret: Secret = self.value_from_object(obj)
        return secret.stored()

    def get_lookup(self, lookup_name: str) -> Any:
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else None
