"""A reason: a code with arguments, which is rendered as text in the reader's language."""

from __future__ import annotations

import gettext
import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import Any, Protocol, Self

from cronsim import CronSim
from django.utils import translation

from monitoring import units
from monitoring.marking import Plural
from monitoring.marking import marked as _
from monitoring.units import Translated

SOURCE = "en"  # the language that the texts of the codes are written in
_ENGLISH = gettext.NullTranslations()
_CODES: dict[str, ReasonCode] = {}


class ReasonCode(StrEnum):
    """The codes of one area. A member has a code and an English text with a placeholder for each argument.

        PAUSED_UNTIL = "recovery.paused-until", _("its automation is paused until {until:minute}")

    Rows store the code, so it stays when the text is reworded. `_` marks the text: the English text is the key in
    the catalogues of the other languages. After the colon in a placeholder is one of FORMS, or a format of Python; a
    translation may choose another one.

    A text that depends on the grammatical number of an argument has two English forms, and in the catalogues as many
    as the language has:

        FILES = "archive.files", ngettext("{count} file", "{count} files", "count"), "archive.one-file"

    Such a member may replace the code of an earlier version for the number 1, which rows still have.
    """

    text: str | Plural
    names: frozenset[str]

    def __new__(cls, code: str, text: str | Plural, replaces: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        several = text.several if isinstance(text, Plural) else text
        member.names = frozenset(name for _, name, _, _ in string.Formatter().parse(several) if name is not None)
        for each in filter(None, (code, replaces)):
            if _CODES.setdefault(each, member) is not member:
                raise ValueError(f"two reasons have the code {each!r}")
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
    if code is None or not isinstance(args, Mapping):
        return None
    if code != value["code"] and isinstance(code.text, Plural):
        args = {code.text.argument: 1} | dict(args)
    if not code.names <= args.keys():
        return None
    try:
        return Reason(code, {name: _from_json(each) for name, each in args.items()})
    except _UnknownReason:
        return None


def from_text(text: str) -> Reason | None:
    """Return the reason that a text has as JSON, such as the output of a process. None if the text is anything else."""
    try:
        return from_json(json.loads(text))
    except ValueError:
        return None


def codes() -> Sequence[ReasonCode]:
    """Return all codes of the imported areas."""
    return tuple(dict.fromkeys(_CODES.values()))


def render(reason: Reason | str, language: str) -> str:
    """Return the text of `reason` in `language`, such as "en" or "zh-hans".

    A `str` is returned unchanged: it is the text of a row from a version that stored only texts.
    """
    if isinstance(reason, str):
        return reason
    if language == SOURCE:
        return _Text(_ENGLISH).of(reason)
    with translation.override(language):
        return _Text(translation).of(reason)


class _Catalogue(Protocol):
    def gettext(self, message: str, /) -> str: ...

    def ngettext(self, singular: str, plural: str, number: int, /) -> str: ...


class _Text(string.Formatter):
    def __init__(self, catalogue: _Catalogue) -> None:
        self._catalogue = catalogue
        self._translated = catalogue.gettext

    def of(self, reason: Reason) -> str:
        return self.vformat(self._form(reason), (), reason.args)

    def _form(self, reason: Reason) -> str:
        match reason.code.text:
            case Plural(one, several, argument):
                return self._catalogue.ngettext(one, several, round(reason.args[argument]))
            case text:
                return self._translated(text)

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
Form = Callable[[Any, Translated], str]


def _moment(form: str) -> Form:
    return lambda value, translated: units.time_text(datetime.fromisoformat(value), form, translated)


def _cron(value: Any, translated: Translated) -> str:
    """Return a description of a cron expression. It is English, so translations show the expression itself."""
    words = CronSim(value, datetime.now(UTC)).explain()
    return f"{words[0].lower()}{words[1:]}"


# How two items of a list are joined. Apart from these, "clause" removes the full stop of a sentence.
_LISTED = _("{}, {}")
JOINED = {"clauses": _("{}; {}"), "sentences": _("{} {}")}
# How the text of a time, or a number, is shown.
FORMS: Mapping[str, Form] = {
    "minute": _moment(units.MINUTE),
    "second": _moment(units.SECOND),
    "hh:mm": _moment(units.CLOCK_MINUTE),
    "hh:mm:ss": _moment(units.CLOCK_SECOND),
    "day": _moment(units.DAY),
    "date": _moment(units.DATE),
    "cron": _cron,
    "length": units.length_text,
    "milliseconds": units.duration_text,
    "bytes": units.bytes_text,
}


def _plain(value: Any) -> Any:
    match value:
        case date():  # datetime is a subclass of date
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
