"""What of a configuration is a secret, by its key, and what is shown in its place: to everybody, on every page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac

# As Flink hides them in its own pages, and Spark in its.
_SECRET = (
    *("password", "passwd", "secret", "token", "credential", "account.key", "apikey", "api-key", "api_key"),
    *("access.key", "access-key", "private", "auth-params", "basic-auth", "service-key", "jaas.config", "http-headers"),
)
_HIDDEN = re.compile(r"hidden \([0-9a-f]{8}\)")
_OPTION = re.compile(r"(?P<key>-{0,2}[A-Za-z][A-Za-z0-9._-]*)(?P<sign>=)(?P<value>.+)", re.DOTALL)
_IN_URL = re.compile(r"(?P<start>[a-z][a-z0-9+.-]*://[^/\s:@]*:)(?P<value>[^/\s@]+)(?=@)", re.IGNORECASE)


def is_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET)


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Secrets as a mark that changes with them and tells nothing else."""
    return {
        key: hidden(key, value) if _hides(key, value) else _without_password(value) for key, value in values.items()
    }


def hidden(key: str, value: Any) -> str:
    mark = salted_hmac("waymark.configuration", f"{key}={value}", algorithm="sha256").hexdigest()[:8]
    return f"hidden ({mark})"


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Of a command line: the values of `--password=…`, `--password …` and of addresses with a password in them."""
    found: list[str] = []
    for argument in arguments:
        before = found[-1] if found else ""
        if before.startswith("-") and "=" not in before and is_secret(before) and not argument.startswith("-"):
            found.append(hidden(before.lstrip("-"), argument))
        else:
            found.append(_shown_argument(argument))
    return found


def shown_launch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A launch record as everybody may see it."""
    masked = dict(spec)
    if isinstance(spec.get("configuration"), Mapping):
        masked["configuration"] = shown(spec["configuration"])
    for name in ("program_args", "command"):
        if isinstance(spec.get(name), list):
            masked[name] = shown_arguments([str(each) for each in spec[name]])
    return masked


def unmasked_launch(typed: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a person typed over a masked record: what is still hidden is what is stored.

    Raises ValueError for a mark that stands for nothing there.
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
    if not isinstance(value, str) or not _HIDDEN.search(value):
        return value
    if (key, value) not in marks:
        raise ValueError(f"{key} is hidden here, and no such value is stored: write the value itself")
    return marks[key, value]


def _argument(name: str, value: str, known: Mapping[str, str]) -> str:
    if not _HIDDEN.search(value):
        return value
    if value not in known:
        raise ValueError(f"{name} has a hidden value that is not stored: write the value itself")
    return known[value]


def _hides(key: str, value: Any) -> bool:
    return value not in (None, "") and is_secret(key) and not (isinstance(value, str) and _HIDDEN.fullmatch(value))


def _shown_argument(argument: str) -> str:
    option = _OPTION.fullmatch(argument)
    if option and is_secret(option["key"]):
        return f"{option['key']}={hidden(option['key'].lstrip('-'), option['value'])}"
    return str(_without_password(argument))


def _without_password(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value:
        return value
    return _IN_URL.sub(lambda found: found["start"] + hidden("url", found["value"]), value)
