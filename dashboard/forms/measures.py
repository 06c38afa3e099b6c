"""Fields for numbers with units. Every error names the allowed range."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from dashboard.forms.spans import SpanField
from monitoring.alerts.kinds.base import Day, Number, Unit
from monitoring.units import ENGLISH

_MILLISECONDS = re.compile(r"(\d{1,12})\s*ms", re.IGNORECASE)
_SIZE = re.compile(r"([+-]?\d{1,15}(?:[.,]\d{1,15})?)\s*([KMGTP]?i?B)", re.IGNORECASE)
_POWERS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def field_of(measure: Number | Day) -> forms.Field:
    """Return the form field for a parameter of a rule type."""
    if isinstance(measure, Day):
        widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        return forms.DateField(
            required=False, label=_(measure.label), help_text=_in_language(measure.hint), widget=widget
        )
    hint = f"{_in_language(measure.hint)} {_in_language(measure.empty)}".strip()
    common: dict[str, Any] = {"label": _(measure.label), "help_text": hint, "required": measure.default is not None}
    match measure.unit:
        case Unit.SECONDS:
            return SpanField(least=measure.least, most=measure.most, **common)
        case Unit.MILLISECONDS:
            return MeasureField(measure, **common)
        case Unit.BYTES:
            return MeasureField(measure, **common)
        case Unit.COUNT | Unit.PERCENT:
            range_ = {"least": measure.least, "most": measure.most}
            wrong = _("Enter a whole number from %(least)s to %(most)s.") % range_
            errors = dict.fromkeys(("invalid", "min_value", "max_value"), wrong)
            return forms.IntegerField(min_value=measure.least, max_value=measure.most, error_messages=errors, **common)


def _in_language(text: str) -> str:
    return _(text) if text else ""


class MeasureField(forms.CharField):
    """A field that converts `500 ms` or `2 s` to milliseconds, and `500 MB` or `1.5 GB` to bytes with base 1024."""

    def __init__(self, measure: Number, **options: Any) -> None:
        super().__init__(**options)
        self._measure = measure
        self.widget.attrs |= {"inputmode": "text", "autocomplete": "off", "spellcheck": "false"}

    def prepare_value(self, value: Any) -> Any:
        return format_value(self._measure.unit, value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        size = _size(text) if self._measure.unit is Unit.BYTES else _milliseconds(text)
        if size is None:
            such = "B, KB, MB, GB or TB" if self._measure.unit is Unit.BYTES else "ms, s, min or h"
            raise ValidationError(
                _("Enter a number and a unit (%(such)s), %(allowed)s.")
                % {"such": such, "allowed": self._measure.allowed},
                code="measure",
            )
        return size

    def validate(self, value: Any) -> None:
        super().validate(value)
        if value is not None and not self._measure.least <= value <= self._measure.most:
            text = self._measure.unit.text(value, ENGLISH)
            raise ValidationError(
                _("%(value)s is not allowed: %(allowed)s.") % {"value": text, "allowed": self._measure.allowed},
                code="range",
            )


def format_value(unit: Unit, value: int) -> str:
    """Format a value exactly, in the form that the field accepts."""
    units = _BYTES if unit is Unit.BYTES else _TIMES
    name, size = next((name, size) for name, size in units if (value and value % size == 0) or size == 1)
    return f"{value // size} {name}"


_BYTES = [(name, 1024**power) for name, power in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1), ("B", 0))]
_TIMES = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)]


def _size(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip())
    if not found:
        return None
    power = _POWERS[found[2][0].upper()]
    size: float = float(found[1].replace(",", ".")) * 1024**power
    return round(size)


def _milliseconds(text: str) -> int | None:
    found = _MILLISECONDS.fullmatch(text.strip())
    if found:
        return int(found[1])
    try:
        seconds = SpanField(least=0, most=10**9).to_python(text)
    except ValidationError:
        return None
    return int(seconds) * 1000 if isinstance(seconds, int) else None
