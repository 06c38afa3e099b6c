"""A reason: a code with arguments, which is rendered as text in the reader's language."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import Any, Self

from cronsim import CronSim
from django.utils.translation import gettext, override

from monitoring.durations import in_words, with_units
from monitoring.marking import marked as _
from monitoring.units import bytes_text, milliseconds_text

SOURCE = "en"  # the language that the texts of the codes are written in
_CODES: dict[str, ReasonCode] = {}


class ReasonCode(StrEnum):
    """The codes of one area. A member has a code and an English text with a placeholder for each argument.

        PAUSED_UNTIL = "recovery.paused-until", _("its automation is paused until {until:minute}")

    Rows store the code, so it stays when the text is reworded. `_` marks the text: the English text is the key in
    the catalogues of the other languages. After the colon of a place stands one of FORMS, or a format of Python; a
    translation may choose another one.
    """

    text: str
    names: frozenset[str]

    def __new__(cls, code: str, text: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.names = frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)
        if _CODES.setdefault(code, member) is not member:
            raise ValueError(f"two reasons have the code {code!r}")
        return member

    def __call__(self, **args: Any) -> Reason:
        """Return the reason with these arguments: texts, numbers, times, lengths of time, reasons, or lists of them.

        A time becomes its ISO 8601 text, a length of time becomes seconds, a list becomes a tuple.

        Raises:
            TypeError: the arguments do not match the placeholders of the text.
        """
        if args.keys() != self.names:
            raise TypeError(f"{self} needs the arguments {sorted(self.names)}, not {sorted(args)}")
        return Reason(self, {name: _plain(value) for name, value in args.items()})


@dataclass(frozen=True)
class Reason:
    """A code with arguments. Reasons with equal codes and arguments are equal. `str` returns the English text."""

    code: ReasonCode
    args: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash(self.code)

    def __str__(self) -> str:
        return render(self, SOURCE)

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code.value, "args": {name: _as_json(value) for name, value in self.args.items()}}


def from_json(value: Any) -> Reason | None:
    """Return the reason that `as_json` wrote; None if this release has no text for it.

    An older or a newer release may have written it: the code may be unknown, or an argument may be missing.
    """
    if not isinstance(value, Mapping):
        return None
    code, args = _CODES.get(str(value.get("code"))), value.get("args")
    if code is None or not isinstance(args, Mapping) or not code.names <= args.keys():
        return None
    try:
        return Reason(code, {name: _from_json(each) for name, each in args.items()})
    except _UnknownReason:
        return None


def codes() -> Sequence[ReasonCode]:
    """Return all codes of the imported areas."""
    return tuple(_CODES.values())


def render(reason: Reason | str, language: str) -> str:
    """Return the text of `reason` in `language`, such as "en" or "zh-hans".

    A `str` is returned unchanged: it is the text of a row from a version that stored only texts.
    """
    if isinstance(reason, str):
        return reason
    if language == SOURCE:
        return _Text(str).of(reason)
    with override(language):
        return _Text(gettext).of(reason)


class _Text(string.Formatter):
    def __init__(self, translated: Callable[[str], str]) -> None:
        self._translated = translated

    def of(self, reason: Reason) -> str:
        return self.vformat(self._translated(reason.code.text), (), reason.args)

    def format_field(self, value: Any, format_spec: str) -> str:
        match value:
            case _ if format_spec == "clause":
                return self.format_field(value, "").rstrip(".。")
            case Reason():
                return self.of(value)
            case tuple() if format_spec in JOINED:
                return self._joined(JOINED[format_spec], [self.format_field(each, "") for each in value])
            case tuple():
                return self._joined(_LISTED, [self.format_field(each, format_spec) for each in value])
            case _ if format_spec in FORMS:
                return FORMS[format_spec](value, self._translated)
            case _:
                return format(value, format_spec)

    def _joined(self, pair: str, texts: Sequence[str]) -> str:
        return reduce(self._translated(pair).format, texts) if texts else ""


# A function that returns the text of an argument. Its second parameter translates the text that the form adds.
Form = Callable[[Any, Callable[[str], str]], str]


def _moment(form: str) -> Form:
    return lambda value, translated: f"{datetime.fromisoformat(value):{translated(form)}}"


def _cron(value: Any, translated: Callable[[str], str]) -> str:
    """Return an English description of a cron expression, or in other languages the expression itself."""
    words = CronSim(value, datetime.now(UTC)).explain()
    return f"{words[0].lower()}{words[1:]}" if translated is str else str(value)


def _length(in_english: Callable[[Any], str]) -> Form:
    return lambda value, translated: with_units(in_english(value), translated)


# How two items of a list are joined. Apart from these, "clause" removes the full stop of a sentence.
_LISTED = _("{}, {}")
JOINED = {"clauses": _("{}; {}"), "sentences": _("{} {}")}
# How the text of a time, or a number, is shown.
FORMS: Mapping[str, Form] = {
    "minute": _moment("%Y-%m-%d %H:%M %Z"),
    "second": _moment("%Y-%m-%d %H:%M:%S %Z"),
    "hh:mm": _moment("%H:%M %Z"),
    "hh:mm:ss": _moment("%H:%M:%S %Z"),
    "day": _moment("%Y-%m-%d"),
    "date": _moment(_("%-d %B %Y")),
    "cron": _cron,
    "length": _length(in_words),
    "milliseconds": _length(milliseconds_text),
    "bytes": lambda value, translated: bytes_text(value),
}


def _plain(value: Any) -> Any:
    match value:
        case date():  # datetime is a subclass
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case list() | tuple():
            return tuple(_plain(each) for each in value)
        case _:
            return value


def _as_json(value: Any) -> Any:
    match value:
        case Reason():
            return value.as_json()
        case tuple():
            return [_as_json(each) for each in value]
        case _:
            return value


class _UnknownReason(Exception):
    """A nested reason whose code is unknown in this release."""


def _from_json(value: Any) -> Any:
    match value:
        case Mapping():
            nested = from_json(value)
            if nested is None:
                raise _UnknownReason
            return nested
        case list():
            return tuple(_from_json(each) for each in value)
        case _:
            return value
