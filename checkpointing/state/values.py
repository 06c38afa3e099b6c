"""The values that operator state keeps: those that JSON can hold."""

from __future__ import annotations

import math
from typing import Any

_PLAIN = (str, bool, int, type(None))
KINDS_ALLOWED = "null, true, false, a finite number, text, a list of these, or a dictionary of these with text as keys"


class NotJson(TypeError):
    """A value that JSON cannot hold as it is; the text names where it stands and what is allowed."""


def json_copy(value: Any, where: str) -> Any:
    """A deep copy of `value`, tuples as lists: what a reader will see after a restore. NotJson."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [json_copy(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: json_copy(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise NotJson(f"{where}: {_described(value)} cannot be kept; allowed is {KINDS_ALLOWED}")


def _described(value: Any) -> str:
    if isinstance(value, dict):
        key = next(key for key in value if not isinstance(key, str))
        return f"a dictionary with the key {key!r}"
    return f"{value!r} ({type(value).__name__})"
