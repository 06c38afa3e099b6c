"""A query for each sink in the table "Exactly once, end to end" of docs/programs.md, each with a separate target.

    python every_sink.py --sinks=plain,merging --input=IN --output=OUT …     runs them with plain Spark

A line of the input is "word number". Sinks that add rows get the lines, sinks with keys the count of each word.
"""

import sqlite3
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.sinks.context import current, query_of
from checkpointing.sinks.files import FileSink
from checkpointing.sinks.postgres import PostgresSink


def queries(spark, args):
    """Return a stream writer for each name in `sinks`.

    With `stateful`, lines pass an operator that drops duplicates; the input has none. `remote` is the path of the
    directory `output` on another Hadoop file system. The names of PostgreSQL tables begin with `tables`.
    """
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", args["files-per-batch"]).load(args["input"])
    rows = lines.dropDuplicates(["value"]) if args.get("stateful") else lines
    counts = lines.selectExpr("split(value, ' ')[0] AS word").groupBy("word").count()
    return [SINKS[name](Query(name, args, rows, counts)).queryName(name) for name in args["sinks"].split(",")]


@dataclass
class Query:
    name: str
    args: dict[str, str]
    rows: Any
    counts: Any

    @property
    def path(self):
        return Path(self.args["output"], self.name)

    @property
    def database(self):
        return Database(f"{self.path}.sqlite")

    def each(self, function):
        return self.rows.writeStream.foreachBatch(function)

    def counted(self, mode):
        return self.counts.writeStream.outputMode(mode)

    def postgres(self, **options):
        return PostgresSink(self.args["dsn"], f"{self.args['tables']}_{self.name.replace('-', '_')}", **options)


class Database:
    """A SQLite file with a table of events and a table of counts."""

    def __init__(self, path):
        self.path = path

    @contextmanager
    def transaction(self):
        with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS events (value, batch_id, task, abandoned)")
            connection.execute("CREATE TABLE IF NOT EXISTS counts (word PRIMARY KEY, count)")
            yield connection

    def insert(self, values, batch, task=0):
        with self.transaction() as connection:
            insert(connection, values, batch, task)

    def insert_once(self, values, batch, task=0):
        with self.transaction() as connection:
            if not has(connection, batch, task):
                insert(connection, values, batch, task)


def insert(connection, values, batch, task=0):
    connection.executemany("INSERT INTO events VALUES (?, ?, ?, false)", [(each, batch, task) for each in values])


def has(connection, batch, task=0):
    return connection.execute("SELECT 1 FROM events WHERE batch_id = ? AND task = ?", (batch, task)).fetchone()


# --- functions of foreachBatch, and foreach --------------------------------------------------------------------------


def values_of(frame):
    return [row["value"] for row in frame.collect()]


def plain(database):
    return lambda frame, batch: database.insert(values_of(frame), batch)


def skipping(database):
    return lambda frame, batch: database.insert_once(values_of(frame), batch)


def marking(database):
    """Return the foreachBatch function that docs/programs.md shows: rows carry their batch number."""

    def write(frame, batch):
        numbers = current().abandoned(query_of(frame))
        is_abandoned = " OR ".join(f"batch_id BETWEEN {first} AND {last}" for first, last in numbers) or "false"
        values = values_of(frame)
        with database.transaction() as connection:
            if not has(connection, batch):
                connection.execute(
                    f"UPDATE events SET abandoned = ({is_abandoned}) WHERE abandoned <> ({is_abandoned})"
                )
                insert(connection, values, batch)

    return write


def replacing(database):
    def write(frame, batch):
        values = values_of(frame)
        with database.transaction() as connection:
            connection.execute("DELETE FROM events WHERE batch_id = ?", (batch,))
            insert(connection, values, batch)

    return write


def merging(database, *, all_rows=False):
    """Return a foreachBatch function that updates counts by key. `all_rows`: a batch replaces all rows."""

    def write(frame, batch):
        rows = [(row["word"], row["count"]) for row in frame.collect()]
        with database.transaction() as connection:
            if all_rows:
                connection.execute("DELETE FROM counts")
            connection.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?)", rows)

    return write


def through_jdbc(path):
    """Return a foreachBatch function that writes to Derby over JDBC. PySpark contains Derby's driver."""
    return lambda frame, batch: frame.write.jdbc(f"jdbc:derby:{path};create=true", "events", "append")


class Foreach:
    """A foreach writer that adds each task's rows in one transaction. With `once`, it skips tasks that are stored."""

    def __init__(self, database, *, once):
        self.database = database
        self.once = once

    def open(self, partition, epoch):
        self.task, self.values = (epoch, partition), []
        return True

    def process(self, row):
        self.values.append(row["value"])

    def close(self, error):
        if error is None:
            (self.database.insert_once if self.once else self.database.insert)(self.values, *self.task)


# --- the queries -----------------------------------------------------------------------------------------------------

SINKS = {
    "our-files": lambda query: query.each(FileSink(query.path, "json")),
    "our-table": lambda query: query.each(query.postgres()),
    "our-table-history": lambda query: query.counted("update").foreachBatch(query.postgres(key=["word"], history=True)),
    "our-table-key": lambda query: query.counted("update").foreachBatch(query.postgres(key=["word"])),
    "parquet": lambda query: query.rows.writeStream.format("parquet").option("path", str(query.path)),
    "remote-json": lambda query: query.rows.writeStream.format("json").option(
        "path", f"{query.args['remote']}/{query.name}"
    ),
    "skipping": lambda query: query.each(skipping(query.database)),
    "marking": lambda query: query.each(marking(query.database)),
    "replacing": lambda query: query.each(replacing(query.database)),
    "repeating": lambda query: query.each(replacing(query.database)).option("waymark.batch-numbers", "repeat"),
    "merging": lambda query: query.counted("update").foreachBatch(merging(query.database)),
    "plain": lambda query: query.each(plain(query.database)),
    "jdbc": lambda query: query.each(through_jdbc(query.path)),
    "foreach": lambda query: query.rows.writeStream.foreach(Foreach(query.database, once=False)),
    "foreach-skipping": lambda query: query.rows.writeStream.foreach(Foreach(query.database, once=True)),
    "complete": lambda query: query.counted("complete").foreachBatch(merging(query.database, all_rows=True)),
    "memory": lambda query: query.counted("complete").format("memory"),
    "console": lambda query: query.rows.writeStream.format("console"),
    "noop": lambda query: query.rows.writeStream.format("noop"),
}


def main():
    from pyspark.sql import SparkSession

    args = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        args["mount"]: f"file://{args['output']}",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for writer, name in zip(queries(spark, args), args["sinks"].split(","), strict=True):
        writer.option("checkpointLocation", f"{args['locations']}/{name}").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
