"""What a sign found: a cause or an advice, as reasons, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import Reason, ReasonCode


class FindingReason(ReasonCode):
    CERTAIN = "diagnosis.certain", _("certain")
    LIKELY = "diagnosis.likely", _("likely")
    POSSIBLE = "diagnosis.possible", _("possible")
    USUALLY = "diagnosis.usually", _("usually")


class Confidence(IntEnum):
    """The surest first."""

    CERTAIN = 1
    LIKELY = 2
    POSSIBLE = 3

    @property
    def reason(self) -> Reason:
        return FindingReason[self.name]()


USUALLY = FindingReason.USUALLY()


@dataclass(frozen=True)
class Evidence:
    """One number or text, with its unit; `usual`: what it is for this job otherwise, "" where that is not known, or for
    whom `against` names. A `str` is the same in every language."""

    label: Reason
    value: Reason | str
    usual: Reason | str = ""
    against: Reason = USUALLY


@dataclass(frozen=True)
class Advice:
    """What to set: the engine's or Waymark's exact key, to what. `value` "" where only a person can know it."""

    key: str
    value: str
    why: Reason
    link: str = ""


@dataclass(frozen=True)
class Finding:
    """`weight` orders those of one confidence, the greatest first: mostly the share of the time it explains."""

    name: str
    title: Reason
    sentence: Reason
    evidence: Sequence[Evidence] = ()
    advice: Sequence[Advice] = ()
    confidence: Confidence = Confidence.LIKELY
    weight: float = 0.0
    at: str = ""  # the engine's name of the setting that an advice is about
