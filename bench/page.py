"""Update the table in docs/benchmarks.md. Each benchmark replaces its own rows, which have its figures with goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure, shortened

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_HEADER = "| benchmark | what is measured | figure (goal) |"


def record(name: str, figures: Sequence[Figure], page: Path = PAGE) -> None:
    """Write the figures of benchmark `name` with today's date. ValueError if there is no table."""
    page.write_text(with_figures(page.read_text(), name, figures, str(datetime.now(UTC).date())))


def with_figures(text: str, name: str, figures: Iterable[Figure], measured: str) -> str:
    """Return the page's `text` with new rows for the benchmark: in place of its old ones, or at the table's end."""
    lines = text.splitlines()
    first = lines.index(_HEADER) + 2
    last = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    begins = [at for at in range(first, last) if not lines[at].startswith("| |")]
    start = next((at for at in begins if lines[at].startswith(f"| `{name}` ")), last)
    end = next((at for at in begins if at > start), last)
    named: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.goal is not None:
            named.setdefault(figure.name, []).append(figure)
    rows = "\n".join(f"| | {_cells(cases)} |" for cases in named.values())
    rows = rows.replace("| |", f"| `{name}` {measured} |", 1)
    return "\n".join([*lines[:start], rows, *lines[end:]]) + "\n"


def _cells(figures: Sequence[Figure]) -> str:
    """Return the cells for figures with the same name and unit."""
    first = figures[0]
    name = f"{first.name}: {'; '.join(each.case for each in figures)}" if first.case else first.name
    values = f"{'; '.join(shortened(each.value) for each in figures)} {first.unit}".rstrip()
    limits = "; ".join(dict.fromkeys(each.limit for each in figures))
    missed = "" if all(each.is_met for each in figures) else ", **missed**"
    return f"{name} | {values} ({limits}{missed})"
