"""The report of one cycle of a periodic task."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from monitoring.reasons.reason import Reason, from_json


@dataclass(frozen=True)
class CycleReport:
    """`done`: the cycle's actions. `left`: actions that it did not take, with the reason. `str` returns English."""

    done: tuple[Reason, ...] = ()
    left: tuple[Reason, ...] = ()

    @property
    def is_quiet(self) -> bool:
        return not self.done

    def __add__(self, other: CycleReport) -> CycleReport:
        return CycleReport(self.done + other.done, self.left + other.left)

    def as_json(self) -> dict[str, Any]:
        """Return the report for another process of this release."""
        return {"done": [each.as_json() for each in self.done], "left": [each.as_json() for each in self.left]}

    @classmethod
    def from_json(cls, value: Any) -> CycleReport:
        done, left = ((from_json(each) for each in value[name]) for name in ("done", "left"))
        return cls(tuple(filter(None, done)), tuple(filter(None, left)))

    def __str__(self) -> str:
        return " ".join(str(each) for each in chain(self.done, self.left))
