"""The table "Exactly once, end to end" of docs/programs.md, and the sinks in it that tests run.

Tests take what they expect of a sink from the table only.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

DOCS = Path(__file__).parents[3] / "docs" / "programs.md"
_DOUBLES = {"exact": False, "doubled": True, "nothing": False}
Read = Callable[[Any, Mapping[str, str], str], Counter[str]]


@dataclass(frozen=True)
class Promise:
    """A row of the table. Only the first word of each cell has a meaning for tests."""

    sink: str
    restart: str
    back: str
    forward: str
    refuse: str
    shown_by: str

    @property
    def is_run(self) -> bool:
        return self.shown_by.startswith("tests")

    @property
    def is_warned_of(self) -> bool:
        """Return whether Waymark warns before a restore, and the setting `refuse` prevents an automatic restore."""
        return self.refuse == "●"

    def is_refused(self, column: str) -> bool:
        return self._word(column) == "refused"

    def doubles(self, column: str) -> bool:
        """Return whether the sink has duplicate rows of batches that run again after the fault `column`."""
        return _DOUBLES[self._word(column)]

    def _word(self, column: str) -> str:
        cell: str = getattr(self, column)
        return re.split(r"\W+", cell.lstrip("*"))[0]


def promises() -> dict[str, Promise]:
    """Return the rows of the table, by their first cell."""
    _, _, section = DOCS.read_text().partition("\n## Exactly once, end to end\n")
    lines = section.partition("\n#")[0].splitlines()
    head, _, *rows = [line[2:-2].split(" | ") for line in lines if line.startswith("|")]
    head = [re.sub(r"\[`(.*)`\]\(.*\)", r"\1", cell) for cell in head]
    places = [head.index(column) for column in ("sink", "restart", "back", "forward", "refuse", "shown by")]
    return {row[0]: Promise(*(row[place] for place in places)) for row in rows}


# --- contents of sinks -----------------------------------------------------------------------------------------------


def _selected(path: str, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def _events(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    rows = _selected(f"{args['output']}/{name}.sqlite", "SELECT value FROM events WHERE NOT abandoned")
    return Counter(value for (value,) in rows)


def _counts(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return Counter(dict(_selected(f"{args['output']}/{name}.sqlite", "SELECT word, count FROM counts")))


def _table(args: Mapping[str, str], name: str, columns: str) -> list[Any]:
    with psycopg.connect(args["dsn"]) as connection:
        return connection.execute(f"SELECT {columns} FROM {args['tables']}_{name.replace('-', '_')}").fetchall()  # type: ignore[arg-type]


def _rows_of_table(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return Counter(value for (value,) in _table(args, name, "value"))


def _counts_of_table(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return Counter(dict(_table(args, name, "word, count")))


def _values(frame: Any) -> Counter[str]:
    return Counter(row["value"] for row in frame.collect())


def _derby(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return _values(spark.read.jdbc(f"jdbc:derby:{args['output']}/{name}", "events"))


def _whole_files(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return _values(spark.read.json(f"{args['output']}/{name}"))


def _parquet(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return _values(spark.read.parquet(f"{args['output']}/{name}"))


def _remote(spark: Any, args: Mapping[str, str], name: str) -> Counter[str]:
    return _values(spark.read.json(f"{args['remote']}/{name}"))


@dataclass(frozen=True)
class Sink:
    """A sink under test. `row` is its row of the table. `has_counts`: it has the count of each word, not the lines.

    `read` is None for a sink that stores nothing. `is_ours`: it is Waymark's and does not run under plain Spark.
    """

    row: str
    read: Read | None
    has_counts: bool = False
    is_ours: bool = False


_OURS = "`FileSink`, `PostgresSink` without key, or with `history=True`"
_NOTHING = "`memory` (output mode *complete*), `console`, `noop`"
# The sinks under test, by their names in programs/every_sink.py.
SINKS = {
    "our-files": Sink(_OURS, _whole_files, is_ours=True),
    "our-table": Sink(_OURS, _rows_of_table, is_ours=True),
    "our-table-history": Sink(_OURS, _counts_of_table, has_counts=True, is_ours=True),
    "our-table-key": Sink("`PostgresSink(key=…)`", _counts_of_table, has_counts=True, is_ours=True),
    "parquet": Sink('Spark\'s file sink (`.format("parquet")` and others) on the local file system', _parquet),
    "remote-json": Sink("Spark's file sink on other file systems (`s3a`, `hdfs`, `abfs`, `gs`)", _remote),
    "skipping": Sink("`foreachBatch`, skips a batch number that it knows", _events),
    "marking": Sink("the same, with [`abandoned`](#a-function-that-knows-batch-numbers)", _events, is_ours=True),
    "replacing": Sink("`foreachBatch`, replaces the rows of a batch number", _events),
    "repeating": Sink("the same, with [`waymark.batch-numbers`](#a-function-that-knows-batch-numbers)", _events),
    "merging": Sink("`foreachBatch`, merges by a key (`MERGE`, upsert)", _counts, has_counts=True),
    "plain": Sink("`foreachBatch`, plain; JDBC in `foreachBatch`", _events),
    "jdbc": Sink("`foreachBatch`, plain; JDBC in `foreachBatch`", _derby),
    "foreach": Sink("`foreach`, plain", _events),
    "foreach-skipping": Sink("`foreach`, skips a task (`epoch_id`, `partition_id`) that it knows", _events),
    "complete": Sink("`foreachBatch` in output mode *complete*, replaces all rows", _counts, has_counts=True),
    "memory": Sink(_NOTHING, None, has_counts=True),
    "console": Sink(_NOTHING, None),
    "noop": Sink(_NOTHING, None),
}
