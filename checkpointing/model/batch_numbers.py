"""The batch numbers that one attempt may use (decision 132)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchNumbers:
    """The numbers from `first` to `end`, exclusive, which no other attempt of the job `family` has used or will use."""

    family: str
    first: int
    end: int
