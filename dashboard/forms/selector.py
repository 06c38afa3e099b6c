"""Validation of a label selector in a form."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from monitoring.alerts.selector import BadSelector, parse


def checked_selector(text: str) -> str:
    """Return the selector without spaces around it. Raise ValidationError."""
    try:
        parse(text)
    except BadSelector as problem:
        raise ValidationError(str(problem)) from problem
    return text.strip()
