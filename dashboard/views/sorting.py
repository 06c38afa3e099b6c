"""Tables that are sorted where they are read: by a column of theirs, up or down, asked for in the address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Heading:
    """`query` asks for the table sorted by this column, the other way round where it is sorted by it."""

    label: str
    field: str
    sorted: str  # "ascending", "descending" or ""
    query: str
    numeric: bool = True


@dataclass(frozen=True)
class Sort:
    field: str
    descending: bool

    @classmethod
    def parse(cls, asked: Mapping[str, str], allowed: Iterable[str], default: str) -> Sort:
        """What is not allowed counts as not asked for."""
        field = asked.get("sort", "")
        return cls(field, asked.get("order") == "desc") if field in allowed else cls(default, False)

    def headings(self, columns: Sequence[tuple[str, str]], texts: Iterable[str] = ()) -> list[Heading]:
        """Of (field, label). The first click on a column of figures shows the highest, on one of `texts` the first."""
        plain = set(texts)
        return [self._heading(field, label, field not in plain) for field, label in columns]

    def _heading(self, field: str, label: str, numeric: bool) -> Heading:
        mine = field == self.field
        told = ("descending" if self.descending else "ascending") if mine else ""
        down = not self.descending if mine else numeric
        return Heading(label, field, told, f"sort={field}&order={'desc' if down else 'asc'}", numeric)

    def apply(self, rows: Iterable[Row], value: Callable[[Row], Any]) -> list[Row]:
        """Rows without a value come last, either way."""
        known = [row for row in rows if value(row) is not None]
        unknown = [row for row in rows if value(row) is None]
        return [*sorted(known, key=value, reverse=self.descending), *unknown]
