"""Hide secrets on every page and in every answer of the API, with a mark that changes when the secret changes.

`checkpointing.masking` finds the secrets; this module replaces them, and puts them back where a person saved a masked
record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.utils.crypto import salted_hmac

from checkpointing.masking import MARK, Replace, mask_arguments, mask_value, mask_values


def hidden(key: str, value: Any) -> str:
    """Return a mark that changes with the value and does not reveal it. A mark stays as it is."""
    if isinstance(value, str) and MARK.fullmatch(value):
        return value
    mark = salted_hmac("waymark.configuration", f"{key}={value}", algorithm="sha256").hexdigest()[:8]
    return f"hidden ({mark})"


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with marks for its secrets."""
    return mask_values(values, hidden)


def shown_launch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch record with marks for its secrets."""
    return mask_launch(spec, hidden)


def mask_launch(spec: Mapping[str, Any], replace: Replace) -> dict[str, Any]:
    """Return a launch record with its secrets replaced."""
    masked = dict(spec)
    if isinstance(spec.get("configuration"), Mapping):
        masked["configuration"] = mask_values(spec["configuration"], replace)
    for name in ("program_args", "command"):
        if isinstance(spec.get(name), list):
            masked[name] = mask_arguments([str(each) for each in spec[name]], replace)
    return masked


def unmasked_launch(typed: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a person typed over a masked one, with the stored secrets in place of their marks.

    A mark stands only for a secret of the same key, or of the same command line. Raises ValueError for any other.
    """
    whole = dict(typed)
    if isinstance(typed.get("configuration"), Mapping):
        own = stored.get("configuration") or {}
        whole["configuration"] = {
            key: _revealed(key, value, _marks(partial(mask_value, key, own.get(key))))
            for key, value in typed["configuration"].items()
        }
    for name in ("program_args", "command"):
        if isinstance(typed.get(name), list):
            arguments = [str(each) for each in stored.get(name) or []]
            marks = _marks(partial(mask_arguments, arguments))
            whole[name] = [_revealed(name, each, marks) for each in typed[name]]
    return whole


def _marks(mask: Callable[[Replace], object]) -> dict[str, Any]:
    """Return the secrets that `mask` finds, by their marks."""
    secrets: dict[str, Any] = {}

    def remember(key: str, secret: Any) -> str:
        mark = hidden(key, secret)
        secrets[mark] = secret
        return mark

    mask(remember)
    return secrets


def _revealed(name: str, value: Any, marks: Mapping[str, Any]) -> Any:
    if not isinstance(value, str):
        return value
    if value in marks:
        return marks[value]  # the secret may be of another type than str
    unknown = [mark for mark in MARK.findall(value) if mark not in marks]
    if unknown:
        raise ValueError(f"{name} has a hidden value that is not stored: write the value itself")
    return MARK.sub(lambda found: str(marks[found[0]]), value)
