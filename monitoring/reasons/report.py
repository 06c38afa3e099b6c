"""What one cycle of a periodic task did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from monitoring.reasons.reason import Reason


@dataclass(frozen=True)
class CycleReport:
    """`done`: what the cycle did. `left`: what it did not do, and why. `str` is both in English, a sentence each."""

    done: tuple[Reason, ...] = ()
    left: tuple[Reason, ...] = ()

    @property
    def is_quiet(self) -> bool:
        return not self.done

    def __add__(self, other: CycleReport) -> CycleReport:
        return CycleReport(self.done + other.done, self.left + other.left)

    def __str__(self) -> str:
        return " ".join(str(each) for each in chain(self.done, self.left))
