"""How a figure is printed: name, value, goal, met or not. A goal is a limit on the value, never a timed test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class BenchmarkFailed(Exception):
    """It cannot be measured, or no longer; the text says why."""


@dataclass(frozen=True)
class Figure:
    """`goal` None: nothing to reach. `at_most`: the goal is an upper limit, else a lower one."""

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


def taken(act: Callable[[], object]) -> float:
    """How many seconds it took."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
