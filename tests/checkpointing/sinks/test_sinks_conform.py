"""The conformance tests of sinks for Waymark's sinks, with real Spark, a real PostgreSQL and real directories."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest

from checkpointing.sinks import context, output_directory, postgres_tables
from checkpointing.sinks.conformance import QUERY, Sink, SinkConformance
from checkpointing.sinks.files import FileSink
from checkpointing.sinks.output_directory import OutputDirectory
from checkpointing.sinks.postgres import PostgresSink

pytestmark = pytest.mark.spark

Crashes = Iterable[Callable[[], AbstractContextManager[None]]]


class Killed(Exception):
    """Raised instead of ending the process."""


@contextmanager
def dies_in(owner: Any, name: str, *, after: bool, calls: int = 1) -> Iterator[None]:
    """Raise Killed in the `calls`-th call of the function `name`, before or after its work."""
    original, left = getattr(owner, name), [calls]

    def call(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Killed
        result = original(*arguments, **options)
        if left[0] == 0:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield


class OfSpark(SinkConformance):
    @pytest.fixture(autouse=True)
    def _spark(self, spark: Any) -> Iterator[None]:
        self.spark = spark
        yield
        context._current = None

    def batch(self, *words: str) -> Any:
        """Return a batch of words, created from Arrow so that it needs no Python worker."""
        return self.spark.createDataFrame(pyarrow.table({"word": pyarrow.array(words, pyarrow.string())})).coalesce(1)


class OfPostgres(OfSpark):
    options: dict[str, Any]

    @pytest.fixture(autouse=True)
    def _target(self, postgres_dsn: str) -> Iterator[None]:
        self.dsn, self.table = postgres_dsn, f"words_{uuid.uuid4().hex[:8]}"
        self.opened: list[PostgresSink] = []
        yield
        for sink in self.opened:
            sink.close()

    def make_sink(self) -> Sink:
        self.opened.append(PostgresSink(self.dsn, self.table, query=QUERY, **self.options))
        return self.opened[-1]

    def read(self) -> list[str]:
        with closing(psycopg.connect(self.dsn)) as connection:
            return [word for (word,) in connection.execute(f"SELECT word FROM {self.table}").fetchall()]


class TestPostgresAppends(OfPostgres):
    options = {"key": None}  # noqa: RUF012 - read only

    def crashes(self) -> Crashes:
        table = postgres_tables.AppendedTable
        yield lambda: dies_in(table, "take", after=False)
        yield lambda: dies_in(table, "take", after=True)
        yield lambda: dies_in(table, "rewind", after=True)
        yield self._connections_cut

    @contextmanager
    def _connections_cut(self) -> Iterator[None]:
        """Let the server end every connection after the rows are written and before the transaction is committed."""
        original = postgres_tables.AppendedTable.take

        def take(table: Any, connection: Any, *arguments: Any) -> int:
            rows = original(table, connection, *arguments)
            with psycopg.connect(self.dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_tables.AppendedTable, "take", take)
            yield


@pytest.mark.nightly  # test_postgres_sink.py tests tables with a key, too
class TestPostgresReplacesWithHistory(OfPostgres):
    options = {"key": ["word"], "history": True}  # noqa: RUF012 - read only

    def crashes(self) -> Crashes:
        table = postgres_tables.KeyedTable
        yield lambda: dies_in(table, "take", after=True)
        yield lambda: dies_in(table, "rewind", after=True)


class OfFiles(OfSpark):
    format: str

    @pytest.fixture(autouse=True)
    def _target(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out"

    def make_sink(self) -> Sink:
        return FileSink(self.path, self.format, query=QUERY)

    def crashes(self) -> Crashes:
        yield lambda: dies_in(OutputDirectory, "publish", after=False)
        yield lambda: dies_in(OutputDirectory, "publish", after=True)
        yield lambda: dies_in(OutputDirectory, "_write_fence", after=True)
        yield lambda: dies_in(output_directory, "_move", after=False)
        yield lambda: dies_in(output_directory, "_move", after=True)
        yield lambda: dies_in(output_directory, "_sync", after=True, calls=2)


@pytest.mark.nightly
class TestTextFiles(OfFiles):
    format = "text"

    def read(self) -> list[str]:
        """Return the words in all visible files, read without Spark."""
        files = [file for file in self.path.rglob("*.txt") if not _hidden(file.relative_to(self.path))]
        return [word for file in files for word in file.read_text().splitlines()]


class TestParquetFiles(OfFiles):
    format = "parquet"

    def read(self) -> list[str]:
        if not list(self.path.glob("*/*.parquet")):
            return []
        return [row.word for row in self.spark.read.schema("word string").parquet(str(self.path)).collect()]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
