"""A field for a length of time with a unit."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from monitoring.units import ENGLISH, span_text

# The number of digits is limited, because a very long number would be infinite as a float.
_WRITTEN = re.compile(
    r"([+-]?\d{1,15}(?:[.,]\d{1,15})?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", re.IGNORECASE
)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class SpanField(forms.CharField):
    """A field that converts `15 min`, `90 s`, `2 h` or `1 d` to whole seconds from `least` to `most`."""

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self._least, self._most = least, most
        self.widget.attrs |= {"inputmode": "text", "autocomplete": "off", "spellcheck": "false"}

    def prepare_value(self, value: Any) -> Any:
        return span_text(value, ENGLISH) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        written = _WRITTEN.fullmatch(text.strip())
        if not written:
            raise ValidationError(
                _("Enter a number and a unit (s, min, h or d), %(_allowed)s.") % {"_allowed": self._allowed},
                code="span",
            )
        return round(float(written[1].replace(",", ".")) * _SECONDS[written[2][0].lower()])

    def validate(self, value: Any) -> None:
        super().validate(value)
        if value is not None and not self._least <= value <= self._most:
            raise ValidationError(
                _("%(span_text)s is not allowed: %(_allowed)s.")
                % {"span_text": span_text(value, ENGLISH), "_allowed": self._allowed},
                code="range",
            )

    @property
    def _allowed(self) -> str:
        return f"from {span_text(self._least, ENGLISH)} to {span_text(self._most, ENGLISH)}"
