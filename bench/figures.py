"""Figures with a name, a value and a goal. A figure that misses its goal does not fail the benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class BenchmarkFailed(Exception):
    """The benchmark cannot start or continue. The message gives the reason."""


@dataclass(frozen=True)
class Figure:
    """A measured value. `goal` is None if there is no goal. It is an upper limit with `at_most`, else a lower limit.

    `case` distinguishes figures with the same name. Those with goals share a row in the documentation.
    """

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True
    case: str = ""

    def row(self) -> str:
        name = f"{self.name}: {self.case}" if self.case else self.name
        goal = "–" if self.goal is None else f"{self.limit}: {'met' if self.is_met else '**missed**'}"
        value = f"{self.value:,.2f} {self.unit}".rstrip()
        return f"| {name} | {value} | {goal} |"

    @property
    def limit(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {shortened(self.goal or 0)}"

    @property
    def is_met(self) -> bool:
        if self.goal is None:
            return True
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def shortened(value: float) -> str:
    """Return the value with three digits, or without decimals."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_figures(title: str, figures: list[Figure]) -> None:
    print(f"\n### {title}\n\n| figure | measured | goal |\n| --- | --- | --- |")
    for figure in figures:
        print(figure.row())


def elapsed_s(act: Callable[[], object]) -> float:
    """Return how many seconds `act` takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
