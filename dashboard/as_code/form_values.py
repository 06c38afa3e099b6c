"""Convert the values of forms to values of entries and back. Keys have no unit, because values have one: `5 min`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import QueryDict


def entry_key(name: str) -> str:
    return name.removesuffix("_s")


def field_name(form: forms.BaseForm, key: str) -> str:
    return key if key in form.fields else f"{key}_s"


def export_value(form: forms.BaseForm, name: str) -> Any:
    value = form[name].value()
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)


def labels_text(value: Any) -> Any:
    """Return the labels of an entry, a mapping or a text, as the text that a form reads."""
    return ", ".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, dict) else value


def as_query(data: Mapping[str, Any]) -> QueryDict:
    """Return the data as a browser would send it: without unchecked boxes, and with each value of a list."""
    query = QueryDict(mutable=True)
    for name, value in data.items():
        if value is False:
            continue
        # A form treats a missing text field as one that keeps its default value.
        text = "on" if value is True else "" if value is None else str(value)
        values = value if isinstance(value, list) else [text]
        query.setlist(name, [str(each) for each in values])
    return query
