"""Find secrets in configurations, launch records and command lines, and replace them.

All functions are pure. `replace` gets the key and the secret value and returns what is shown in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

HIDDEN = "******"  # as in Flink
Replace = Callable[[str, Any], str]

# The keys that Flink hides (GlobalConfiguration) and that Spark redacts, and a few more.
_SECRET = (
    *("password", "passwd", "secret", "token", "credential", "account.key", "apikey", "api-key", "api_key"),
    *("access.key", "access-key", "private", "auth-params", "basic-auth", "service-key", "jaas.config", "http-headers"),
)
_OPTION = re.compile(r"(?P<key>-{0,2}[A-Za-z][A-Za-z0-9._-]*)(?P<sign>=)(?P<value>.+)", re.DOTALL)
_IN_URL = re.compile(r"(?P<start>[a-z][a-z0-9+.-]*://[^/\s:@]*:)(?P<value>[^/\s@]+)(?=@)", re.IGNORECASE)


def hidden(key: str, value: Any) -> str:
    """Replace a secret as Flink does: the same text for every value."""
    return HIDDEN


def is_secret(key: str) -> bool:
    """Return whether the value of this key is a secret as a whole."""
    return any(word in key.lower() for word in _SECRET)


def mask_values(values: Mapping[str, Any], replace: Replace = hidden) -> dict[str, Any]:
    """Replace the secrets of a configuration."""
    return {key: mask_value(key, value, replace) for key, value in values.items()}


def mask_value(key: str, value: Any, replace: Replace = hidden) -> Any:
    """Replace the value of a secret key, and in other values the parts that are secrets."""
    if value in (None, ""):
        return value
    return replace(key, value) if is_secret(key) else mask_text(value, replace)


def mask_text(value: Any, replace: Replace = hidden) -> Any:
    """Replace the parts of a text that are secrets whatever its key: the password in an address."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return _IN_URL.sub(lambda found: found["start"] + replace("url", found["value"]), value)


def mask_arguments(arguments: Sequence[str], replace: Replace = hidden) -> list[str]:
    """Replace the secrets of a command line: `--password=…`, `--password …`, and passwords in addresses."""
    masked: list[str] = []
    for number, argument in enumerate(arguments):
        before = arguments[number - 1] if number else ""
        if before.startswith("-") and "=" not in before and is_secret(before) and not argument.startswith("-"):
            masked.append(replace(before.lstrip("-"), argument))
        else:
            masked.append(_mask_argument(argument, replace))
    return masked


def _mask_argument(argument: str, replace: Replace) -> str:
    option = _OPTION.fullmatch(argument)
    if option and is_secret(option["key"]):
        return f"{option['key']}={replace(option['key'].lstrip('-'), option['value'])}"
    return str(mask_text(argument, replace))
