"""The order of a table that is sorted by one of its columns, and the headings that select the column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Heading:
    """The heading of a column. `order` is the direction of the next sort by it: "asc" or "desc"."""

    label: str
    field: str
    sorted: str  # the sort order of the column: "ascending", "descending" or ""
    order: str
    numeric: bool = True

    @property
    def query(self) -> str:
        """Return the query that sorts by this column, or reverses the order if it is sorted by it."""
        return f"sort={self.field}&order={self.order}"


@dataclass(frozen=True)
class Sort:
    """The order of a table: its column and direction, from the query string."""

    field: str
    descending: bool

    @classmethod
    def parse(cls, asked: Mapping[str, str], allowed: Iterable[str], default: str) -> Sort:
        """Return the requested order, or the default if the column is not allowed."""
        field = asked.get("sort", "")
        return cls(field, asked.get("order") == "desc") if field in allowed else cls(default, False)

    def headings(self, columns: Sequence[tuple[str, str]], texts: Iterable[str] = ()) -> list[Heading]:
        """Return the headings of (field, label) columns.

        The first click sorts a numeric column in descending order, and a column in `texts` in ascending order.
        """
        plain = set(texts)
        return [self._heading(field, label, field not in plain) for field, label in columns]

    def _heading(self, field: str, label: str, numeric: bool) -> Heading:
        mine = field == self.field
        direction = ("descending" if self.descending else "ascending") if mine else ""
        down = not self.descending if mine else numeric
        return Heading(label, field, direction, "desc" if down else "asc", numeric)

    def apply(self, rows: Iterable[Row], value: Callable[[Row], Any]) -> list[Row]:
        """Return the sorted rows. Rows without a value come last in both directions."""
        known = [row for row in rows if value(row) is not None]
        unknown = [row for row in rows if value(row) is None]
        return [*sorted(known, key=value, reverse=self.descending), *unknown]
