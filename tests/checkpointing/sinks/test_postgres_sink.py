"""PostgresSink with a real Spark session and a real PostgreSQL."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from checkpointing.sinks.conformance import QUERY
from checkpointing.sinks.context import NotInADriver, SinkContext, set_current
from checkpointing.sinks.postgres import FencedOut, PostgresSink, SinkTableTaken, UnsupportedColumn, write_together
from tests.checkpointing.sinks.conftest import Job

pytestmark = pytest.mark.spark

COUNTS = "word string, count long"


@dataclass
class Table:
    dsn: str
    spark: Any
    name: str
    opened: list[PostgresSink] = field(default_factory=list)

    def read(self, statement: str = "SELECT * FROM {}") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.format(self.name)).fetchall()  # type: ignore[arg-type]

    def counts(self) -> dict[Any, Any]:
        return dict(self.read("SELECT word, count FROM {}"))

    def words(self) -> list[str]:
        return sorted(word for (word,) in self.read("SELECT word FROM {}"))

    def sink(self, **options: Any) -> PostgresSink:
        self.opened.append(PostgresSink(self.dsn, self.name, **{"key": ["word"], "query": QUERY, **options}))
        return self.opened[-1]

    def log(self) -> PostgresSink:
        return self.sink(key=None)

    def frame(self, *rows: tuple[Any, ...], schema: str = COUNTS) -> Any:
        """Return the rows as a data frame with one partition, so that they have an order."""
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def words_frame(self, text: str) -> Any:
        return self.spark.createDataFrame([(word,) for word in text.split()], "word string")


@pytest.fixture
def table(postgres_dsn: str, spark: Any) -> Iterator[Table]:
    made = Table(postgres_dsn, spark, f"counts_{uuid.uuid4().hex[:8]}")
    yield made
    for sink in made.opened:
        sink.close()


def test_a_row_replaces_the_one_with_its_key(table: Table, job: Job) -> None:
    job.attempt(1)
    sink = table.sink()
    sink(table.frame(("a", 1), ("b", 1)), 0)
    sink(table.frame(("b", 2), (None, 5)), 1)
    sink(table.frame((None, 6)), 2)
    assert table.counts() == {"a": 1, "b": 2, None: 6}


def test_last_row_of_a_key_in_one_batch_counts(table: Table, job: Job) -> None:
    job.attempt(1)
    table.sink()(table.frame(("a", 1), ("a", 2), ("a", 3)), 0)
    assert table.counts() == {"a": 3}


def test_every_type_is_stored_and_read_unchanged(table: Table, job: Job) -> None:
    job.attempt(1)
    values = {
        "s": ("string", 'a "quoted",\nword'), "e": ("string", ""), "n": ("string", None), "b": ("boolean", True),
        "x": ("binary", bytearray(b"\x00\xff\\")), "i1": ("byte", -1), "i2": ("short", 2), "i4": ("int", 3),
        "i8": ("long", 2**60), "f4": ("float", 0.5), "f8": ("double", 0.1), "nan": ("double", float("inf")),
        "d": ("date", datetime.date(2024, 2, 29)), "m": ("decimal(20,4)", Decimal("-12345.6789")),
        "t": ("timestamp_ntz", datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)),  # noqa: DTZ001
    }  # fmt: skip
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in values.items())
    row = tuple(value for _, value in values.values())
    table.log()(table.frame(row, schema=schema), 0)
    assert table.read(f"SELECT {', '.join(values)} FROM {{}}") == [row]


def test_a_moment_is_the_same_moment(table: Table, job: Job) -> None:
    job.attempt(1)
    table.log()(table.spark.sql("SELECT timestamp_seconds(1.25) AS moment"), 0)
    [(moment,)] = table.read("SELECT moment FROM {}")
    assert moment.timestamp() == 1.25


def test_a_batch_that_is_in_the_table_is_computed_and_not_written_again(table: Table, job: Job) -> None:
    """The batch must be computed, because Spark updates its state only when it computes the rows."""
    job.attempt(1)
    table.log()(table.words_frame("a b"), 4)
    job.attempt(2)
    computed = table.spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            computed.add(len(batch))
            yield batch

    table.log()(table.words_frame("a b").mapInArrow(count, "word string"), 4)
    assert table.words() == ["a", "b"]
    assert computed.value == 2


def test_a_new_timeline_counts_its_batches_from_zero(table: Table, job: Job) -> None:
    job.attempt(1, "A")
    table.sink()(table.frame(("a", 9)), 7)
    job.attempt(2, "B")
    table.sink()(table.frame(("a", 5)), 3)
    assert table.counts() == {"a": 5}


def test_rows_of_abandoned_batches_leave_the_table_before_the_first_new_row(table: Table, job: Job) -> None:
    a = job.attempt(1, "A")
    sink = table.log()
    for batch, words in enumerate(["a0", "a1 a1", "a2", "a3"]):
        sink(table.words_frame(words), batch)
    job.attempt(2, "B", restored=(a, 1))

    def fail(batches: Any) -> Any:
        raise RuntimeError("before the first new row")

    with pytest.raises(Exception, match="before the first new row"):
        table.log()(table.words_frame("b2").mapInArrow(fail, "word string"), 2)
    assert table.words() == ["a0", "a1", "a1"]
    table.log()(table.words_frame("b2 b2"), 2)
    assert table.words() == ["a0", "a1", "a1", "b2", "b2"]
    assert sorted(table.read("SELECT word, waymark_batch FROM {}_abandoned")) == [("a2", 2), ("a3", 3)]


def test_a_state_that_was_left_behind_finds_its_rows_again(table: Table, job: Job) -> None:
    """Restore S1, then the older S0, then S1 again. No restored query reads the input of S1 again."""
    a = job.attempt(1, "A")
    sink = table.log()
    for batch in range(4):
        sink(table.words_frame(f"a{batch}"), batch)
    s0, s1 = (a, 0), (a, 2)
    b = job.attempt(2, "B", restored=s1)
    table.log()(table.words_frame("b3"), 3)
    assert table.words() == ["a0", "a1", "a2", "b3"]
    job.attempt(3, "C", restored=s0)
    table.log()(table.words_frame("c1"), 1)
    assert table.words() == ["a0", "c1"]
    job.attempt(4, "D", restored=s1)
    table.log()(table.words_frame("d3"), 3)
    assert table.words() == ["a0", "a1", "a2", "d3"]
    job.attempt(5, "E", restored=(b, 3))  # restores a state of an abandoned timeline
    table.log()(table.words_frame("e4"), 4)
    assert table.words() == ["a0", "a1", "a2", "b3", "e4"]


def test_a_keyed_table_with_history_is_restored_and_continued_exactly(table: Table, job: Job) -> None:
    a = job.attempt(1, "A")
    sink = table.sink(history=True)
    sink(table.frame(("x", 1), ("y", 1), (None, 1)), 0)
    sink(table.frame(("x", 2), (None, 2)), 1)
    sink(table.frame(("stale", 1), ("y", 9)), 2)
    job.attempt(2, "B", restored=(a, 1))
    table.sink(history=True)(table.frame(("new", 1)), 2)
    assert table.counts() == {"x": 2, "y": 1, None: 2, "new": 1}
    job.attempt(3, "C")
    table.sink(history=True)(table.frame(("again", 1)), 0)
    assert table.counts() == {"again": 1}
    job.attempt(4, "D", restored=(a, 2))
    table.sink(history=True)(table.frame(), 3)
    assert table.counts() == {"x": 2, "y": 9, None: 2, "stale": 1}


def test_a_key_written_only_by_abandoned_batches_remains_without_history(table: Table, job: Job) -> None:
    a = job.attempt(1, "A")
    table.sink()(table.frame(("x", 1)), 0)
    table.sink()(table.frame(("stale", 1)), 1)
    job.attempt(2, "B", restored=(a, 0))
    table.sink()(table.frame(("x", 2)), 1)
    assert table.counts() == {"x": 2, "stale": 1}


def test_history_of_a_table_that_had_rows_keeps_those(table: Table, job: Job) -> None:
    with psycopg.connect(table.dsn) as connection:
        connection.execute(f"CREATE TABLE {table.name} (word text UNIQUE, count bigint)")
        connection.execute(f"INSERT INTO {table.name} VALUES ('before', 1)")
    a = job.attempt(1, "A")
    table.sink(history=True)(table.frame(("x", 1)), 0)
    table.sink(history=True)(table.frame(("before", 2)), 1)
    job.attempt(2, "B", restored=(a, 0))
    table.sink(history=True)(table.frame(("x", 2)), 1)
    assert table.counts() == {"before": 1, "x": 2}


def test_appending_to_an_existing_table_keeps_its_rows(table: Table, job: Job) -> None:
    with psycopg.connect(table.dsn) as connection:
        connection.execute(f"CREATE TABLE {table.name} (word varchar(9), at timestamptz DEFAULT now())")
        connection.execute(f"INSERT INTO {table.name} VALUES ('before')")
    a = job.attempt(1, "A")
    table.log()(table.words_frame("a0"), 0)
    table.log()(table.words_frame("a1"), 1)
    job.attempt(2, "B", restored=(a, 0))
    table.log()(table.words_frame("b1"), 1)
    assert table.words() == ["a0", "b1", "before"]


def test_two_queries_may_append_to_one_table(table: Table, job: Job) -> None:
    a = job.attempt(1, "A")
    one, other = table.log(), table.sink(key=None, query="other")
    for batch in range(2):
        one(table.words_frame(f"one{batch}"), batch)
        other(table.words_frame(f"other{batch}"), batch)
    job.attempt(2, "B", restored=(a, 0))
    table.log()(table.words_frame("again"), 1)
    assert table.words() == ["again", "one0", "other0", "other1"]


def test_a_table_that_another_job_filled_is_refused(table: Table, job: Job) -> None:
    job.attempt(1)
    table.log()(table.words_frame("a0"), 0)
    Job().attempt(1)
    with pytest.raises(SinkTableTaken, match=r"holds the output of job .* or give it another table"):
        table.log()(table.words_frame("a0"), 0)
    assert table.words() == ["a0"]


def test_a_renamed_query_is_refused_the_table_of_its_former_name(table: Table, job: Job) -> None:
    """With non-restored state allowed, the renamed query would write its whole input a second time."""
    a = job.attempt(1)
    table.log()(table.words_frame("a0"), 0)
    restored = Job()
    restored.attempt(1, "B", restored=(a, 0))
    set_current(SinkContext(restored.job_id, 1, restored.lineage[-1].timeline, {}, {"renamed": ()}))
    with pytest.raises(SinkTableTaken, match=r"holds the output of query 'query': give query 'renamed' another table"):
        table.sink(key=None, query="renamed")(table.words_frame("a0"), 0)
    assert table.words() == ["a0"]


def test_a_new_query_may_append_next_to_restored_ones(table: Table, job: Job) -> None:
    a = job.attempt(1)
    table.log()(table.words_frame("a0"), 0)
    restored = Job()
    restored.attempt(1, "B", restored=(a, 0))
    table.sink(key=None, query="new")(table.words_frame("n0"), 0)  # before the restored query has claimed its table
    table.log()(table.words_frame("b1"), 1)
    assert table.words() == ["a0", "b1", "n0"]


def test_jobs_that_share_a_table_do_not_touch_each_others_rows(table: Table, job: Job) -> None:
    def log() -> PostgresSink:
        return table.sink(key=None, shared=True)

    a = job.attempt(1, "A")
    log()(table.words_frame("one"), 0)
    log()(table.words_frame("gone"), 1)
    Job().attempt(1, "A")
    log()(table.words_frame("other"), 0)
    job.attempt(2, "B", restored=(a, 0))
    log()(table.words_frame("again"), 1)
    assert table.words() == ["again", "one", "other"]


def test_a_dropped_table_has_no_owner(table: Table, job: Job) -> None:
    job.attempt(1)
    former = table.log()
    former(table.words_frame("a0"), 0)
    overtaken = SinkContext(job.job_id, 1, job.lineage[-1].timeline, {}, {QUERY: job.lineage})
    with psycopg.connect(table.dsn) as connection:
        connection.execute(f"DROP TABLE {table.name}")
    Job().attempt(1)
    table.log()(table.words_frame("b0"), 0)
    assert table.words() == ["b0"]
    set_current(overtaken)
    with pytest.raises(FencedOut):
        former(table.words_frame("a1"), 1)


def test_an_older_attempt_is_fenced_out(table: Table, job: Job) -> None:
    job.attempt(2, "B")
    table.sink()(table.frame(("a", 1)), 0)
    job.attempt(1, "A")
    with pytest.raises(FencedOut, match="attempt 1 may not write: attempt 2 has claimed the table since"):
        table.sink()(table.frame(("a", 100)), 9)
    assert table.counts() == {"a": 1}


def test_an_attempt_that_wrote_before_is_fenced_out_in_the_middle_of_its_batch(table: Table, job: Job) -> None:
    job.attempt(1)
    old = table.log()
    old(table.words_frame("a0"), 0)
    overtaken = SinkContext(job.job_id, 1, job.lineage[-1].timeline, {}, {QUERY: job.lineage})
    job.attempt(2)
    table.log()(table.words_frame("a1"), 1)
    set_current(overtaken)
    with pytest.raises(FencedOut, match="attempt 2 of job"):
        old(table.words_frame("late"), 1)
    assert table.words() == ["a0", "a1"]


def test_a_job_that_restores_the_state_of_another_job_takes_over_its_output(table: Table, job: Job) -> None:
    a = job.attempt(7, "A")
    for batch in range(3):
        table.log()(table.words_frame(f"a{batch}"), batch)
    Job().attempt(1, "B", restored=(a, 1))
    table.log()(table.words_frame("b2"), 2)
    assert table.words() == ["a0", "a1", "b2"]
    job.attempt(8, "A", restored=(a, 2))
    with pytest.raises(FencedOut, match="started from its state, has taken over"):
        table.log()(table.words_frame("a3"), 3)


def test_a_batch_that_fails_half_way_leaves_nothing(table: Table, job: Job) -> None:
    job.attempt(1)
    sink = table.sink()
    sink(table.frame(("a", 1)), 0)

    def fail(batches: Any) -> Any:
        yield next(batches)
        raise RuntimeError("a task failed")

    with pytest.raises(Exception, match="a task failed"):
        sink(table.frame(("a", 2), ("b", 2)).mapInArrow(fail, COUNTS), 1)
    assert table.counts() == {"a": 1}
    sink(table.frame(("a", 2)), 1)
    assert table.counts() == {"a": 2}


def test_several_tables_have_all_of_a_batch_or_nothing(table: Table, job: Job) -> None:
    """PostgreSQL checks the constraint when the transaction ends, so both tables have their rows by then."""
    job.attempt(1)
    second = Table(table.dsn, table.spark, f"{table.name}_second", table.opened)
    counts, log = table.sink(), second.log()
    write_together([(counts, table.frame(("a", 1))), (log, second.words_frame("a0"))], 0)
    unique = f"ALTER TABLE {second.name} ADD CONSTRAINT once UNIQUE (word) DEFERRABLE INITIALLY DEFERRED"
    with psycopg.connect(table.dsn) as connection:
        connection.execute(unique)
    with pytest.raises(psycopg.errors.UniqueViolation):
        write_together([(counts, table.frame(("a", 2))), (log, second.words_frame("a0"))], 1)
    assert (table.counts(), second.words()) == ({"a": 1}, ["a0"])
    write_together([(counts, table.frame(("a", 2))), (log, second.words_frame("a1"))], 1)
    job.attempt(2)
    write_together([(table.sink(), table.frame(("a", 9))), (second.log(), second.words_frame("a9"))], 1)
    assert (table.counts(), second.words()) == ({"a": 2}, ["a0", "a1"])


def test_a_table_that_lacks_a_batch_gets_it_beside_one_that_has_it(table: Table, job: Job) -> None:
    job.attempt(1)
    second = Table(table.dsn, table.spark, f"{table.name}_second", table.opened)
    counts, log = table.sink(), second.log()
    counts(table.frame(("a", 1)), 0)
    write_together([(counts, table.frame(("a", 9))), (log, second.words_frame("a0"))], 0)
    assert (table.counts(), second.words()) == ({"a": 1}, ["a0"])


def test_tables_of_two_databases_are_refused(table: Table, job: Job) -> None:
    job.attempt(1)
    elsewhere = PostgresSink("dbname=elsewhere", "t", key=None, query=QUERY)
    with pytest.raises(ValueError, match="one transaction needs tables of one database"):
        write_together([(table.log(), table.words_frame("a")), (elsewhere, table.words_frame("a"))], 0)


def test_a_lost_connection_is_opened_again(table: Table, job: Job) -> None:
    job.attempt(1)
    sink = table.sink()
    sink(table.frame(("a", 1)), 0)
    sink.close()
    sink(table.frame(("a", 2)), 1)
    assert table.counts() == {"a": 2}


def test_two_sinks_may_make_the_tables_at_once(table: Table, job: Job) -> None:
    job.attempt(1)
    failures: list[BaseException] = []
    frames = {name: table.frame((name, 1)) for name in "abcd"}

    def write(name: str) -> None:
        try:
            table.sink(query=name)(frames[name], 0)
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert table.counts() == dict.fromkeys("abcd", 1)


def test_no_rows_of_earlier_attempts_remain(table: Table, job: Job) -> None:
    for number in range(1, 4):
        job.attempt(number)
        table.log()(table.words_frame("a"), number)
    [(sink,)] = table.read(f"SELECT id FROM waymark_sinks WHERE target = '{table.name}'")
    left = table.read(f"SELECT count(*) FROM pg_tables WHERE starts_with(tablename, 'waymark_staging_{sink}_')")
    assert left == [(1,)]


def test_the_query_is_the_one_whose_batch_it_is(table: Table, job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb\n")
    job.attempt(1)
    lines = table.spark.readStream.text(str(tmp_path / "in")).withColumnRenamed("value", "word")
    stream = lines.writeStream.queryName("words").foreachBatch(table.sink(key=None, query=None))
    query = stream.option("checkpointLocation", str(tmp_path / "cp")).start()
    query.processAllAvailable()
    query.stop()
    assert table.words() == ["a", "b"]
    assert table.read(f"SELECT query FROM waymark_sinks WHERE target = '{table.name}'") == [("words",)]


def test_outside_a_streaming_query_the_query_has_to_be_named(table: Table, job: Job) -> None:
    job.attempt(1)
    with pytest.raises(NotInADriver, match="not a batch of a streaming query"):
        table.sink(query=None)(table.frame(), 0)


def test_an_unknown_column_is_named(table: Table, job: Job) -> None:
    job.attempt(1)
    with pytest.raises(UnsupportedColumn, match="column 'tags' is a array"):
        table.sink()(table.frame(schema="word string, tags array<string>"), 0)


def test_a_key_that_the_rows_lack_is_named(table: Table, job: Job) -> None:
    job.attempt(1)
    with pytest.raises(ValueError, match="no column word; they have token"):
        table.sink()(table.frame(schema="token string"), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": []}, "key=.*a list of columns"),
        ({"key": "word"}, "a list of columns"),
        ({"key": None, "history": True}, "history=True"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PostgresSink("", "t", **options)


def test_outside_a_job_there_is_no_context(table: Table) -> None:
    with pytest.raises(NotInADriver):
        table.sink()(table.frame(), 0)
