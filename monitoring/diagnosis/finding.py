"""The result of a sign: a cause or an advice, as reasons, with the numbers as evidence."""

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
    """The confidence of a finding, the most certain first."""

    CERTAIN = 1
    LIKELY = 2
    POSSIBLE = 3

    @property
    def reason(self) -> Reason:
        return FindingReason[self.name]()


USUALLY = FindingReason.USUALLY()


@dataclass(frozen=True)
class Evidence:
    """One number or text, with its unit. A `str` is the same in every language.

    `usual` is the value for comparison, "" if not known. `against` says what it is, by default this job's usual value.
    """

    label: Reason
    value: Reason | str
    usual: Reason | str = ""
    against: Reason = USUALLY


@dataclass(frozen=True)
class Advice:
    """A setting to change: the engine's or Waymark's exact key. `value` is "" if only a person can know it."""

    key: str
    value: str
    why: Reason
    link: str = ""


@dataclass(frozen=True)
class Finding:
    """A cause or an advice. `weight` orders findings of the same confidence, the greatest first.

    It is mostly the share of the checkpoint's duration that the finding explains.
    """

    name: str
    title: Reason
    sentence: Reason
    evidence: Sequence[Evidence] = ()
    advice: Sequence[Advice] = ()
    confidence: Confidence = Confidence.LIKELY
    weight: float = 0.0
    at: str = ""  # the engine's name of the setting that an advice is about
