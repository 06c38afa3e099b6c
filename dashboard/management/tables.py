"""Format tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row. Every column is as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
