"""Stored and raised sentences of the engine room in the page's language, found again by their wording.

Where rows hold the numbers that a sentence was made of, it is made anew from them (language.py). These rows hold the
sentence alone: it is taken apart by the phrasebook, and what it quotes (an engine's words, names, paths) stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from dashboard.phrasebook import PHRASES
from dashboard.units import chinese_length, is_chinese

_PLACE = re.compile(r"\{(\w+)\}")
_LENGTH = re.compile(r"\d+ (d|h|min|s)( \d+ (h|min|s))?")


def told(text: object) -> str:
    """As it is in English, and where nothing is known that it could be."""
    return _chinese(str(text)) if is_chinese() else str(text)


@lru_cache(maxsize=4096)
def _chinese(text: str) -> str:
    if _LENGTH.fullmatch(text):
        return chinese_length(text)
    for pattern, chinese in _patterns():
        if found := pattern.fullmatch(text):
            return _filled(chinese, {name: _chinese(value) for name, value in found.groupdict().items()})
    return text


def _filled(chinese: str, quoted: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: quoted.get(place[1], place[0]), chinese)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Those that leave the least open first."""
    ordered = sorted(PHRASES, key=lambda english: len(_PLACE.sub("", english)), reverse=True)
    return [(_pattern(english), PHRASES[english]) for english in ordered]


def _pattern(english: str) -> re.Pattern[str]:
    parts = _PLACE.split(english)
    opened = [f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return re.compile("".join(opened), re.DOTALL)
