"""PostgresSink against a real PostgreSQL; the batches come from a stand-in for Spark's DataFrame."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from checkpointing.sinks import context
from checkpointing.sinks.context import NotInADriver, SinkContext, set_current
from checkpointing.sinks.postgres import FencedOut, PostgresSink, UnsupportedColumn


@dataclass
class FieldType:
    name: str
    precision: int = 10
    scale: int = 2

    def typeName(self) -> str:
        return self.name


@dataclass
class Field:
    name: str
    dataType: FieldType  # noqa: N815 - Spark's name


class Frame:
    """The part of a DataFrame that the sink uses. `fails_after` rows the reading raises."""

    def __init__(
        self, rows: list[tuple[Any, ...]], types: dict[str, str] | None = None, fails_after: int | None = None
    ):
        types = types or {"word": "string", "count": "long"}
        self.schema = self
        self.fields = [Field(name, FieldType(kind)) for name, kind in types.items()]
        self.write = self
        self.discarded = False
        self._rows = rows
        self._fails_after = fails_after

    def toLocalIterator(self, prefetchPartitions: bool = False) -> Iterator[tuple[Any, ...]]:  # noqa: N803
        for number, row in enumerate(self._rows):
            if number == self._fails_after:
                raise RuntimeError("a task failed")
            yield row

    def format(self, name: str) -> Frame:
        assert name == "noop"
        return self

    def mode(self, name: str) -> Frame:
        return self

    def save(self) -> None:
        self.discarded = True


@dataclass
class Table:
    dsn: str
    name: str
    opened: list[PostgresSink] = field(default_factory=list)

    def rows(self) -> dict[Any, Any]:
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute(f'SELECT * FROM "{self.name}"').fetchall())

    def sink(self, query: str | None = None) -> PostgresSink:
        self.opened.append(PostgresSink(self.dsn, self.name, key=["word"], query=query))
        return self.opened[-1]


@pytest.fixture
def table(postgres_dsn: str) -> Iterator[Table]:
    made = Table(postgres_dsn, f"counts_{uuid.uuid4().hex[:8]}")
    yield made
    for sink in made.opened:
        sink.close()


@pytest.fixture
def attempt() -> Iterator[Callable[..., None]]:
    """Makes this process an attempt of one job."""
    job_id = uuid.uuid4().hex

    def be(number: int, timeline: str = "one") -> None:
        set_current(SinkContext(job_id, number, timeline))

    yield be
    context._current = None


def test_a_row_replaces_the_one_with_its_key(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    sink = table.sink()
    sink(Frame([("a", 1), ("b", 1)]), 0)
    sink(Frame([("b", 2), (None, 5)]), 1)
    sink(Frame([(None, 6)]), 2)
    assert table.rows() == {"a": 1, "b": 2, None: 6}


def test_of_rows_with_the_same_key_in_one_batch_the_last_counts(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    table.sink()(Frame([("a", 1), ("a", 2), ("a", 3)]), 0)
    assert table.rows() == {"a": 3}


def test_a_batch_that_is_in_the_table_is_computed_and_not_written_again(
    table: Table, attempt: Callable[..., None]
) -> None:
    attempt(1)
    table.sink()(Frame([("a", 1)]), 4)
    attempt(2)
    again = Frame([("a", 100)])
    table.sink()(again, 4)
    assert table.rows() == {"a": 1}
    assert again.discarded, "Spark's state moves on only when the rows are computed"


def test_a_new_timeline_counts_its_batches_anew(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1, "one")
    table.sink()(Frame([("a", 9)]), 7)
    attempt(2, "two")
    table.sink()(Frame([("a", 5)]), 3)
    assert table.rows() == {"a": 5}


def test_an_older_attempt_is_fenced_out(table: Table, attempt: Callable[..., None]) -> None:
    attempt(2, "two")
    table.sink()(Frame([("a", 1)]), 0)
    attempt(1, "one")
    with pytest.raises(FencedOut, match="attempt 1 may not write: attempt 2 has written since"):
        table.sink()(Frame([("a", 100)]), 9)
    assert table.rows() == {"a": 1}


def test_a_batch_that_fails_half_way_leaves_nothing(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    sink = table.sink()
    sink(Frame([("a", 1)]), 0)
    with pytest.raises(RuntimeError, match="a task failed"):
        sink(Frame([("a", 2), ("b", 2)], fails_after=1), 1)
    assert table.rows() == {"a": 1}
    sink(Frame([("a", 2)]), 1)
    assert table.rows() == {"a": 2}


def test_a_lost_connection_is_opened_again(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    sink = table.sink()
    sink(Frame([("a", 1)]), 0)
    sink.close()
    sink(Frame([("a", 2)]), 1)
    assert table.rows() == {"a": 2}


def test_two_sinks_may_make_the_tables_at_once(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            table.sink(query=name)(Frame([(name, 1)]), 0)
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert table.rows() == dict.fromkeys("abcd", 1)


def test_a_column_that_postgresql_does_not_know_is_named(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    with pytest.raises(UnsupportedColumn, match="column 'tags' is a array"):
        table.sink()(Frame([], {"word": "string", "tags": "array"}), 0)


def test_a_key_that_the_rows_lack_is_named(table: Table, attempt: Callable[..., None]) -> None:
    attempt(1)
    with pytest.raises(ValueError, match="no column word; they have token"):
        table.sink()(Frame([], {"token": "string"}), 0)


def test_outside_a_job_there_is_no_context(table: Table) -> None:
    with pytest.raises(NotInADriver):
        table.sink()(Frame([]), 0)
