"""Finds secrets in configurations, launch records and command lines, and replaces them.

A value is a secret by its key (`my.password`), or a part of it is one by its shape: passwords in addresses, `key=value`
pairs, JSON and HTTP headers within a text, and tokens of well-known services.

All functions are pure. `replace` gets the key and the secret value, and returns the text to show instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "******"  # as in Flink
MARK = re.compile(r"hidden \([0-9a-f]{8}\)")  # the text of Waymark's pages for a secret; it stays unchanged
Replace = Callable[[str, Any], str]
Span = tuple[int, int, str]  # start, end and key of a secret within a text

# The keys that Flink hides (GlobalConfiguration) and that Spark redacts, and a few more, without separators.
_SECRET = (
    *("password", "passwd", "passphrase", "pgpass", "secret", "token", "credential", "accountkey", "apikey"),
    *("accesskey", "accesssignature", "privatekey", "authparams", "basicauth", "servicekey", "jaasconfig"),
    *("httpheaders", "authorization"),
)
_SECRET_LAST_WORD = re.compile(r"(?!bypass|compass).*(?:pass|passcode|pwd)")
_WORKING_DIRECTORY = re.compile(r"(?:.*\benv\.)?PWD")
_SAS = re.compile(r"fs\.azure\.sas\..")
# Last words of keys that describe where a secret is or how it is used: `password-file`, `credentials.provider`.
_ABOUT_A_SECRET = frozenset(
    {"file", "path", "location", "provider", "class", "type", "name", "interval", "delay", "ratio", "timeout"}
)
_DECLARED = re.compile(r"waymark\.secret(-file)?\.")  # a job's own secrets, with any name and value
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_KEY = re.compile(
    r"(?<![A-Za-z0-9._-])(?P<key>-{0,2}[A-Za-z][A-Za-z0-9._-]*)(?P<close>\\?[\"'])?\s*(?P<sign>[=:])[^\S\n]*"
)
# A value in quotes, which may be escaped, else up to the character that ends it in its context.
_QUOTED = re.compile(r"(?P<quote>\\?[\"'])(?P<secret>.+?)(?P=quote)", re.DOTALL)
_BARE = {
    "?": re.compile(r"(?P<secret>[^\s&#\"']+)"),
    ";": re.compile(r"(?P<secret>[^;\"'\n]+)"),
    "{": re.compile(r"(?P<secret>[^\s,}\]\"'\\]+)"),
    "": re.compile(r"(?P<secret>[^\s;\"']+)"),
}
# Parameters of URLs that contain a signature and so give access.
_SIGNATURES = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature"})
_HEADER = re.compile(r"x-[a-z0-9-]+|api-?key", re.IGNORECASE)
_OPTION = re.compile(r"(?<!\S)-{1,2}(?P<key>[A-Za-z][A-Za-z0-9._-]*)[^\S\n]+(?P<secret>[^\s\"'-][^\s\"']*)")
_NAMED_SHAPES = {
    "url": re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@?#]*:(?P<secret>[^/\s?#]+)(?=@)"),
    "oracle": re.compile(r"jdbc:oracle:[a-z]+:[^/@:\s]+/(?P<secret>[^/@\s]+)(?=@)"),
    "authorization": re.compile(
        r"authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?:bearer|basic|digest|negotiate|token|apikey)\s+)?"
        r"(?P<secret>[^\s\"',;\\]+)",
        re.IGNORECASE,
    ),
    "bearer": re.compile(r"\bbearer\s+(?P<secret>(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE),
    "private-key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>(?:(?!-----).)+)-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
    ),
    "token": re.compile(
        r"\b(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+|gh[pousr]_[A-Za-z0-9]{30,}"
        r"|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|wmk_[A-Za-z0-9_-]{20,})"
    ),
    "webhook": re.compile(r"hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]+)"),
}


def hidden(key: str, value: Any) -> str:
    """Replace a secret as Flink does: the same text for every value."""
    return HIDDEN


def is_secret(key: str) -> bool:
    """Return whether the value of this key is a secret as a whole."""
    if _DECLARED.match(key):
        return True
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words or words[-1] in _ABOUT_A_SECRET or _WORKING_DIRECTORY.fullmatch(key):
        return False
    squashed = "".join(words)
    return (
        any(word in squashed for word in _SECRET)
        or _SECRET_LAST_WORD.fullmatch(words[-1]) is not None
        or _SAS.match(key.lower()) is not None
    )


def mask_values(values: Mapping[str, Any], replace: Replace = hidden) -> dict[str, Any]:
    """Replace the secrets of a configuration."""
    return {key: mask_value(key, value, replace) for key, value in values.items()}


def mask_value(key: str, value: Any, replace: Replace = hidden) -> Any:
    """Replace the value of a secret key, and in other values the parts that are secrets."""
    match value:
        case None | "" | bool():
            return value
        case _ if _DECLARED.match(key):
            return replace(key, value)
        case str() if value.strip().lower() in ("true", "false") or _is_count(key, value):
            return value
        case _ if is_secret(key):
            return replace(key, value)
        case Mapping():
            return mask_values(value, replace)
        case list() | tuple() if all(isinstance(each, str) for each in value):
            return mask_arguments(value, replace)
        case list() | tuple():
            return [mask_value(key, each, replace) for each in value]
    return mask_text(value, replace)


def _is_count(key: str, value: str) -> bool:
    """Return whether the value is a number of tokens."""
    return key.lower().endswith("tokens") and value.isdecimal()


def mask_text(value: Any, replace: Replace = hidden) -> Any:
    """Replace the parts of a text that look like secrets, whatever key has the text as its value."""
    if not isinstance(value, str):
        return value
    masked, at = [], 0
    found = (span for span in _secrets_in(value) if not MARK.match(value, span[0]))
    for start, end, key in _merge_overlapping(sorted(found)):
        masked += [value[at:start], replace(key, value[start:end])]
        at = end
    return "".join([*masked, value[at:]]) if masked else value


def mask_arguments(arguments: Sequence[str], replace: Replace = hidden) -> list[str]:
    """Replace the secrets of a command line: `--password=…`, `--password …`, and those within an argument."""
    masked: list[str] = []
    for number, argument in enumerate(arguments):
        before = arguments[number - 1] if number else ""
        masked.append(_mask_argument(before, argument, replace))
    return masked


_OPTION_WITH_VALUE = re.compile(r"(?P<key>-{0,2}[A-Za-z][A-Za-z0-9._-]*)=(?P<value>.+)", re.DOTALL)
_ANOTHER_OPTION = re.compile(r"--.*|-[a-z][a-z-]*|-[DX].*|-[A-Za-z]", re.DOTALL)
_USER = re.compile(r"(?P<start>[^:\s]+:)(?P<secret>.+)")


def _mask_argument(before: str, argument: str, replace: Replace) -> str:
    if before.startswith("-") and "=" not in before and is_secret(before) and not _ANOTHER_OPTION.fullmatch(argument):
        return str(mask_value(before.lstrip("-"), argument, replace))
    if before in ("-u", "--user") and (user := _USER.fullmatch(argument)) and not user["secret"].isdecimal():
        return user["start"] + replace("user", user["secret"])
    option = _OPTION_WITH_VALUE.fullmatch(argument)
    if option and is_secret(option["key"]):
        return f"{option['key']}={mask_value(option['key'].lstrip('-'), option['value'], replace)}"
    return str(mask_text(argument, replace))


def _merge_overlapping(spans: Iterable[Span]) -> list[Span]:
    """Join overlapping spans, so that no part of a secret remains."""
    apart: list[Span] = []
    for start, end, key in spans:
        if apart and start < apart[-1][1]:
            before = apart.pop()
            apart.append((before[0], max(before[1], end), before[2]))
        else:
            apart.append((start, end, key))
    return apart


def _secrets_in(text: str) -> Iterator[Span]:
    """Yield the start, the end and the key of each secret. They may overlap."""
    for key, shape in _NAMED_SHAPES.items():
        yield from ((*found.span("secret"), key) for found in shape.finditer(text))
    for found in _OPTION.finditer(text):
        if is_secret(found["key"]):
            yield *found.span("secret"), found["key"]
    ends: dict[str, int] = {}
    for found in _KEY.finditer(text):
        yield from _value_after(text, found, ends)


def _value_after(text: str, found: re.Match[str], ends: dict[str, int]) -> Iterator[Span]:
    """Yield the secret that follows a key and its sign, if the pair has one.

    `ends`: where the last value of each context ended. A value that begins within it is a part of it and ends there,
    too. So a text with many keys in one value is not read to the end for each key.
    """
    key, before = found["key"].lstrip("-"), text[found.start() - 1 : found.start()]
    in_address = before in ("?", "&")
    if not (is_secret(key) or (in_address and key.lower() in _SIGNATURES)):
        return
    if found["sign"] == ":" and not (found["close"] or before in ("{", ",") or _HEADER.fullmatch(key)):
        return  # the text is prose or an address, not a secret
    place = "?" if in_address else "{" if found["sign"] == ":" else before if before == ";" else ""
    value = _QUOTED.match(text, found.end())
    if value is None and found.end() < ends.get(place, 0):
        return
    value = value or _BARE[place].match(text, found.end())
    if value is None or value["secret"].lower() in ("true", "false", "null", "none") or _is_count(key, value["secret"]):
        return
    if value.re is not _QUOTED:
        ends[place] = value.end()
    yield *value.span("secret"), key
