"""Download rows as CSV or JSON, streamed so that only a few rows are in memory.

In CSV, a text that a spreadsheet would execute as a formula gets a leading apostrophe. JSON has the stored text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.http import Http404, StreamingHttpResponse

Row = TypeVar("Row")
# The first characters, also in full width, by which spreadsheets recognize a formula.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_LINES_PER_CHUNK = 200  # lines in a chunk of the response


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column. Its `name` ends with the unit, such as `state_size_bytes`.

    Values are numbers, texts, booleans, times or None.
    """

    name: str
    value: Callable[[Row], Any]


def download(form: str, name: str, columns: Sequence[Column[Row]], rows: Iterable[Row]) -> StreamingHttpResponse:
    """Return the rows as a file named `name` in the format `form`, "csv" or "json".

    Raises:
        Http404: The format is unknown.
    """
    match form:
        case "csv":
            lines, kind = _csv(columns, rows), "text/csv; charset=utf-8"
        case "json":
            lines, kind = _json(columns, rows), "application/json"
        case _:
            raise Http404
    answer = StreamingHttpResponse(_join_lines(lines), content_type=kind)
    answer.headers["Content-Disposition"] = f'attachment; filename="{file_name(name)}.{form}"'
    answer.headers["Cache-Control"] = "no-store"
    return answer


def file_name(text: str) -> str:
    """Return a file name that every file system accepts, from any text such as a job's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text).strip("-.")[:120] or "rows"


class _Line:
    """A file object that keeps only the line that was written last."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _csv(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Iterator[str]:
    line = _Line()
    writer = csv.writer(line)
    writer.writerow([column.name for column in columns])
    yield line.text
    for row in rows:
        writer.writerow([_cell(column.value(row)) for column in columns])
        yield line.text


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _json(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Iterator[str]:
    """Yield a JSON array with one object per line."""
    yield "["
    for number, row in enumerate(rows):
        values = {column.name: column.value(row) for column in columns}
        text = json.dumps(values, ensure_ascii=False, default=lambda each: _plain(each))
        yield f"{',' if number else ''}\n{text}"
    yield "\n]\n"


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else float(str(value))  # PostgreSQL's averages are Decimals


def _join_lines(lines: Iterator[str]) -> Iterator[str]:
    """Join lines to larger chunks, because a chunk for each line would cost more than the rows."""
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) >= _LINES_PER_CHUNK:
            yield "".join(chunk)
            chunk = []
    yield "".join(chunk)
