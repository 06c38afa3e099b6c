"""What a sign found: a cause or an advice, in words, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from django.utils.translation import get_language


@dataclass(frozen=True)
class Words:
    """A text in both languages. `%` fills both from the same values, of which Words are each in its own."""

    en: str
    zh: str

    def __mod__(self, values: dict[str, object]) -> Self:
        english = {name: value.en if isinstance(value, Words) else value for name, value in values.items()}
        chinese = {name: value.zh if isinstance(value, Words) else value for name, value in values.items()}
        return type(self)(self.en.format(**english), self.zh.format(**chinese))

    def __str__(self) -> str:
        """In the language that the page is in."""
        return self.zh if (get_language() or "").lower().startswith("zh") else self.en


class Confidence(IntEnum):
    """The surest first."""

    CERTAIN = 1
    LIKELY = 2
    POSSIBLE = 3

    @property
    def words(self) -> Words:
        match self:
            case Confidence.CERTAIN:
                return Words("certain", "确定")
            case Confidence.LIKELY:
                return Words("likely", "很可能")
            case Confidence.POSSIBLE:
                return Words("possible", "可能")


@dataclass(frozen=True)
class Evidence:
    """One number or text, with its unit; `usual`: what it is for this job otherwise, "" where that is not known, or for
    whom `against` names."""

    label: Words
    value: str
    usual: str = ""
    against: Words = Words("usually", "通常")


@dataclass(frozen=True)
class Advice:
    """What to set: the engine's or Waymark's exact key, to what. `value` "" where only a person can know it."""

    key: str
    value: str
    why: Words
    link: str = ""


@dataclass(frozen=True)
class Finding:
    """`weight` orders those of one confidence, the greatest first: mostly the share of the time it explains."""

    name: str
    title: Words
    sentence: Words
    evidence: Sequence[Evidence] = ()
    advice: Sequence[Advice] = ()
    confidence: Confidence = Confidence.LIKELY
    weight: float = 0.0
    at: str = ""  # the engine's name of the setting that an advice is about
