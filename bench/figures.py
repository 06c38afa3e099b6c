"""Figures with a name, a value and a goal. A figure that misses its goal does not fail the benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class BenchmarkFailed(Exception):
    """The benchmark cannot start or continue. The message gives the reason."""


@dataclass(frozen=True)
class Figure:
    """A measured value. `goal` is None if there is no goal. It is an upper limit with `at_most`, else a lower limit."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True

    def row(self) -> str:
        return f"| {self.name} | {self.measured()} | {self.reached()} |"

    def measured(self) -> str:
        return f"{self.value:,.2f} {self.unit}".rstrip()

    def reached(self) -> str:
        """Return the goal, and whether the value meets it."""
        if self.goal is None:
            return "–"
        met = self.value <= self.goal if self.at_most else self.value >= self.goal
        goal = f"{'≤' if self.at_most else '≥'} {self.goal:,.2f} {self.unit}".rstrip()
        return f"{goal}: {'met' if met else '**missed**'}"


def print_figures(title: str, figures: list[Figure]) -> None:
    print(f"\n### {title}\n\n| figure | measured | goal |\n| --- | --- | --- |")
    for figure in figures:
        print(figure.row())


def elapsed_s(act: Callable[[], object]) -> float:
    """Return how many seconds `act` takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
