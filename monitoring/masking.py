"""Hide secrets on every page and in every answer of the API, with a mark that changes when the secret changes.

`checkpointing.masking` finds the secrets; this module replaces them, and puts them back where a person saved a masked
record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac

from checkpointing.masking import mask_arguments, mask_values

_MARK = re.compile(r"hidden \([0-9a-f]{8}\)")


def hidden(key: str, value: Any) -> str:
    """Return a mark that changes with the value and does not tell it. A mark stays as it is."""
    if isinstance(value, str) and _MARK.fullmatch(value):
        return value
    mark = salted_hmac("waymark.configuration", f"{key}={value}", algorithm="sha256").hexdigest()[:8]
    return f"hidden ({mark})"


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with marks for its secrets."""
    return mask_values(values, hidden)


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with marks for its secrets."""
    return mask_arguments(arguments, hidden)


def shown_launch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch record with marks for its secrets."""
    masked = dict(spec)
    if isinstance(spec.get("configuration"), Mapping):
        masked["configuration"] = shown(spec["configuration"])
    for name in ("program_args", "command"):
        if isinstance(spec.get(name), list):
            masked[name] = shown_arguments([str(each) for each in spec[name]])
    return masked


def unmasked_launch(typed: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a person typed over a masked one, with the stored values in place of their marks.

    Raises ValueError for a mark that stands for no stored value.
    """
    whole = dict(typed)
    if isinstance(typed.get("configuration"), Mapping):
        marks = _marks(shown(stored.get("configuration") or {}), stored.get("configuration") or {})
        whole["configuration"] = {key: _revealed(key, value, marks) for key, value in typed["configuration"].items()}
    for name in ("program_args", "command"):
        if isinstance(typed.get(name), list):
            own = [str(each) for each in stored.get(name) or []]
            known = dict(zip(shown_arguments(own), own, strict=True))
            whole[name] = [_argument(name, each, known) for each in typed[name]]
    return whole


def _marks(masked: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[tuple[str, Any], Any]:
    return {(key, masked[key]): plain[key] for key in masked}


def _revealed(key: str, value: Any, marks: Mapping[tuple[str, Any], Any]) -> Any:
    if not isinstance(value, str) or not _MARK.search(value):
        return value
    if (key, value) not in marks:
        raise ValueError(f"{key} is hidden here, and no such value is stored: write the value itself")
    return marks[key, value]


def _argument(name: str, value: str, known: Mapping[str, str]) -> str:
    if not _MARK.search(value):
        return value
    if value not in known:
        raise ValueError(f"{name} has a hidden value that is not stored: write the value itself")
    return known[value]
