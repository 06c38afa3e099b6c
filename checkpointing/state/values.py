"""The values of operator state, which JSON can represent."""

from __future__ import annotations

import math
from typing import Any

_PLAIN = (str, bool, int, type(None))
KINDS_ALLOWED = "null, true, false, a finite number, text, a list of these, or a dictionary of these with text as keys"


class NotJson(TypeError):
    """JSON cannot represent a value. The text says where it is and what is allowed."""


def json_copy(value: Any, where: str) -> Any:
    """Return a deep copy of `value` with tuples as lists, as a reader sees it after a restore. Raise NotJson."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [json_copy(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: json_copy(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise NotJson(f"{where}: {_described(value)} cannot be stored; allowed are {KINDS_ALLOWED}")


def _described(value: Any) -> str:
    if isinstance(value, dict):
        key = next(key for key in value if not isinstance(key, str))
        return f"a dictionary with the key {key!r}"
    return f"{value!r} ({type(value).__name__})"
