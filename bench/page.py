"""Update the table of figures in docs/benchmarks.md. Each benchmark replaces its own rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.figures import Figure

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_HEADER = "| benchmark | what is measured | figure | goal | measured |"


def record(name: str, figures: Sequence[Figure], page: Path = PAGE) -> None:
    """Write the figures of benchmark `name` with today's date and this machine. ValueError if there is no table."""
    page.write_text(with_figures(page.read_text(), name, figures, f"{datetime.now(UTC).date()}, {_machine()}"))


def with_figures(text: str, name: str, figures: Sequence[Figure], measured: str) -> str:
    """Return the page's `text` with new rows for the benchmark: in place of its old ones, or at the table's end."""
    lines = text.splitlines()
    first = lines.index(_HEADER) + 2
    last = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    begins = [at for at in range(first, last) if not lines[at].startswith("| |")]
    start = next((at for at in begins if lines[at].startswith(f"| `{name}` |")), last)
    end = next((at for at in begins if at > start), last)
    rows = [f"| | {each.name} | {each.measured()} | {each.reached()} | {measured} |" for each in figures]
    rows[0] = rows[0].replace("| |", f"| `{name}` |", 1)
    return "\n".join([*lines[:start], *rows, *lines[end:]]) + "\n"


def _machine() -> str:
    return f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB"
