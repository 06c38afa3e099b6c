"""Store a reason in two columns: `<column>` with its English text, and `<column>_value` with its code and arguments.

The text is for people who read the table with SQL, and for rows of earlier versions, which have no value.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from monitoring.reasons.reason import Reason, from_json


class ReasonField(models.JSONField):
    """A field for a `Reason` or None, stored as `{"code": …, "args": {…}}`, so a query may filter by `<name>__code`."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Reason | None:
        return from_json(super().from_db_value(value, expression, connection))

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        plain = value.as_json() if isinstance(value, Reason) else value
        return super().get_db_prep_value(plain, connection, prepared)

    def value_to_string(self, obj: models.Model) -> Any:
        value = self.value_from_object(obj)
        return value.as_json() if isinstance(value, Reason) else value

    def to_python(self, value: Any) -> Any:
        return value if value is None or isinstance(value, Reason) else from_json(value)


def columns(name: str, reason: Reason | str) -> dict[str, Any]:
    """Return the values of the columns `name` and `<name>_value`, to create or update a row or for an answer."""
    return {name: str(reason), f"{name}_value": reason if isinstance(reason, Reason) else None}


def store(row: models.Model, name: str, reason: Reason | str) -> None:
    """Set the columns `name` and `<name>_value` of the row in memory. The caller saves both."""
    for column, value in columns(name, reason).items():
        setattr(row, column, value)


def stored(row: models.Model, name: str) -> Reason | str:
    """Return the reason in `<name>_value`, or the text in `name` for a row of an earlier version."""
    value: Reason | None = getattr(row, f"{name}_value")
    return getattr(row, name) if value is None else value
