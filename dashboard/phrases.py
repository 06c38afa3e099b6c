"""Stored and raised sentences of the engine room in the page's language, found again by their wording.

A reason is rendered. Other rows hold the sentence alone: it is taken apart by the phrasebook, and what it quotes (an
engine's words, names, paths) stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from django.utils.translation import get_language

from dashboard.phrasebook import PHRASES
from dashboard.units import LENGTH, is_chinese
from monitoring.durations import in_chinese
from monitoring.reasons.reason import SOURCE, Reason, render

_PLACE = re.compile(r"\{(\w+)\}")
# What may stand at a place, where what is left of its phrase is too little to know it by.
_STANDS_FOR = {"count": r"[\d,]+", "url": r"\S+"}
# Between sentences, clauses and words that were put beside each other.
_BETWEEN = ((re.compile(r"(?<=\.) "), ""), (re.compile(r"; "), "；"), (re.compile(r", "), "、"))


def told(text: object) -> str:
    """As it is in English, and where nothing is known that it could be."""
    translated = _chinese if is_chinese() else str
    if isinstance(text, Reason):
        return render(text, get_language() or SOURCE, translated)
    return translated(str(text))


@lru_cache(maxsize=4096)
def _chinese(text: str) -> str:
    if LENGTH.fullmatch(text):
        return in_chinese(text)
    if several := _each(text):
        return several
    for pattern, chinese in _patterns():
        if found := pattern.fullmatch(text):
            return _filled(chinese, {name: _chinese(value) for name, value in found.groupdict().items()})
    return text


def _each(text: str) -> str:
    """Several phrases beside each other, where each of them is known; "" where that is not so."""
    for between, comma in _BETWEEN:
        parts = between.split(text)
        if len(parts) > 1 and all(_chinese(part) != part for part in parts):
            return comma.join(map(_chinese, parts))
    return ""


def _filled(chinese: str, quoted: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: quoted.get(place[1], place[0]), chinese)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Those that leave the least open first, and it in the fewest places."""

    def closed(english: str) -> tuple[int, int]:
        return len(_PLACE.sub("", english)), -len(_PLACE.findall(english))

    ordered = sorted(PHRASES, key=closed, reverse=True)
    return [(_pattern(english), PHRASES[english]) for english in ordered]


def _pattern(english: str) -> re.Pattern[str]:
    parts = _PLACE.split(english)
    opened = [_opened(part) if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return re.compile("".join(opened), re.DOTALL)


def _opened(name: str) -> str:
    return f"(?P<{name}>{_STANDS_FOR.get(name, '.+?')})"
