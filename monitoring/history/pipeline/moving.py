"""Move rows of a table to Parquet files with Spark: read, sort, write, read the files back, and compare.

A move writes the files of one table, cluster and month. Its rows come from PostgreSQL and from files that it replaces;
of two versions of a row, PostgreSQL's is used. So old partitions, late rows and small files are all moves. Pages read a
new file only when Waymark's database lists it, so an interrupted move changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import parquet as pq
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from checkpointing.storage.opening import files_for

from .checkpoints import connected
from .columns import (
    CHANGES,
    DAY,
    FIGURES,
    HOUR,
    LONGEST_REASON,
    OPERATOR_FIGURES,
    REASON_PATTERN,
    spark_schema,
)
from .rollups import by_operator, operators_by_day, rolled

# A row group is the unit that a reader reads. Its first and last values show whether it has wanted rows.
ROWS_A_GROUP = 32_768
_LEVEL = 9
_TAIL = 8  # bytes at the end of a file: the length of the footer, and the format's name
_FILES = "path string, size long, sha256 string, footer_sha256 string"
# The last line of a Python traceback in the text of a Java exception.
_ERROR = re.compile(r"^[\w.]*[A-Z]\w*: .*$", re.MULTILINE)

T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]


class MoveFailed(OSError):
    """Raised if files cannot be written or read, or differ from the rows; the message says which."""


@dataclass(frozen=True)
class Move:
    """What to write.

    schema: the columns of the table. same: the columns by which two rows are versions of the same one. order: the
    columns by which files are sorted; the first one divides the rows among files. time: the column of a row's time.
    statement: SQL that returns these columns, times in microseconds since 1970, with parameters for the start and the
    end of a slice. slices: each is read by one task; none: no row of PostgreSQL. replaced: path -> SHA-256. paths: the
    new files, below `root`; as many as there are, or fewer if the rows have fewer values by which they are divided.
    """

    schema: pa.Schema
    same: Sequence[str]
    order: Sequence[str]
    time: str
    encodings: Mapping[str, str]
    by_dictionary: Sequence[str]
    statement: str
    slices: Sequence[tuple[datetime, datetime]]
    replaced: Mapping[str, str]
    root: str
    paths: Sequence[str]


def carry_out(spark: SparkSession, dsn_file: str, move: Move) -> dict[str, dict[str, Any]]:
    """Write the files, compare their rows with those of a second reading, and describe each file by its path.

    A description has the columns of _FILES and of `_described`. Raises MoveFailed.
    """
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_A_GROUP)
    try:
        rows = _rows_of(spark, dsn_file, move)
        number = len(move.paths)
        parts = rows.repartitionByRange(number, *move.order) if number > 1 else rows.coalesce(1)
        stored = parts.sortWithinPartitions(*move.order).mapInArrow(_writer(move), _FILES).collect()
        files = {row["path"]: row.asDict() for row in stored}
        described = _described(spark, move, {path: file["sha256"] for path, file in files.items()})
        wanted = _digest(_rows_of(spark, dsn_file, move), move.schema)
    except (PySparkException, Py4JError) as error:
        lines = _ERROR.findall(str(error))
        raise MoveFailed(lines[0] if lines else str(error)) from error
    found = sum(each["rows"] for each in described), sum(int(each["hashes"]) for each in described)
    if found != wanted:
        raise MoveFailed(
            f"{move.paths[0]}: {found[0]:,} rows were written, but the table now has {wanted[0]:,} rows or other values"
        )
    return {each["path"]: {**files[each["path"]], **each} for each in described}


def rolled_up(
    spark: SparkSession, root: str, schema: pa.Schema, files: Mapping[str, str], runs: Mapping[int, int],
    days: Sequence[tuple[int, date]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the roll-ups of hours and days of these jobs and days (UTC), from the files that have their checkpoints.

    files: path -> SHA-256. runs: run -> job.
    """
    reason = sf.regexp_extract("failure_message", REASON_PATTERN, 0).substr(1, LONGEST_REASON)
    at = sf.unix_seconds("triggered_at")
    columns = {
        "job_id": sf.col("job_id"),
        "hour": sf.floor(at / HOUR) * HOUR,
        "at": at,
        "status": sf.col("status"),
        "is_savepoint": sf.col("is_savepoint"),
        "reason": sf.when(sf.col("status") == "FAILED", reason),
        **{figure: sf.col(column) for figure, column in FIGURES.items()},
        "changed": sf.lit(True),
        "operator": sf.lit(None).cast("string"),
    }
    known = _of_days(spark, _read(spark, root, schema, files), runs, days)
    checkpoints = known.select(*(columns[name].alias(name) for name in CHANGES.names))
    both = rolled(checkpoints, HOUR).unionByName(rolled(checkpoints, DAY))
    return list(both.drop("changed").toArrow().to_pylist())


def operators_rolled_up(
    spark: SparkSession, dsn_file: str, schema: pa.Schema, files: Mapping[str, str], operators: Move,
    runs: Mapping[int, int], days: Sequence[tuple[int, date]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the roll-ups by operator of these jobs and days (UTC).

    files: those with the checkpoints, path -> SHA-256. operators: a move of all rows of their operators.
    """
    done = _read(spark, operators.root, schema, files).where("status = 'COMPLETED'")
    known = _of_days(spark, done, runs, days).select("job_id", sf.col("id").alias("checkpoint_id"), "triggered_at")
    columns = {
        "operator": sf.col("vertex_id"),
        "at": sf.unix_seconds("triggered_at"),
        "status": sf.lit("COMPLETED"),
        **{figure: sf.col(FIGURES[figure]) for figure in OPERATOR_FIGURES},
    }
    parts = _rows_of(spark, dsn_file, operators).join(known, ["checkpoint_id", "triggered_at"])
    hours = by_operator(parts.select("job_id", *(column.alias(name) for name, column in columns.items())), HOUR)
    return list(hours.unionByName(operators_by_day(hours)).toArrow().to_pylist())


def _of_days(
    spark: SparkSession, checkpoints: DataFrame, runs: Mapping[int, int], days: Sequence[tuple[int, date]]
) -> DataFrame:
    """Return the checkpoints of these jobs and days (UTC), with the column `job_id`."""
    jobs = spark.createDataFrame(list(runs.items()), "run_id long, job_id long")
    wanted = spark.createDataFrame(list(days), "job_id long, day date")
    known = checkpoints.join(jobs, "run_id").withColumn("day", sf.to_date("triggered_at"))
    return known.join(wanted, ["job_id", "day"])


def _rows_of(spark: SparkSession, dsn_file: str, move: Move) -> DataFrame:
    """Return PostgreSQL's rows, and those of the replaced files that PostgreSQL does not have."""
    rows = _tasks(spark, move.slices).mapInArrow(_selected(dsn_file, move), spark_schema(move.schema))
    if not move.replaced:
        return rows
    old = _read(spark, move.root, move.schema, move.replaced).drop("path")
    if not move.slices:
        return old
    return rows.unionByName(old.join(rows.select(*move.same), list(move.same), "left_anti"))


def _tasks(spark: SparkSession, parts: Sequence[Any]) -> DataFrame:
    """Return the numbers of the parts, in one task each."""
    return spark.range(0, len(parts), numPartitions=max(1, len(parts)))


def _of(parts: Sequence[T], batches: Batches) -> Iterator[T]:
    for batch in batches:
        yield from (parts[number] for number in batch["id"].to_pylist())


def _selected(dsn_file: str, move: Move) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that turns slices into their rows."""

    def select(batches: Batches) -> Batches:
        for since, until in _of(move.slices, batches):
            with (
                connected(dsn_file) as connection,
                connection.transaction(),
                connection.cursor(name="archive", binary=True) as cursor,
            ):
                cursor.execute(move.statement, [since, until])
                while found := cursor.fetchmany(ROWS_A_GROUP):
                    columns = zip(zip(*found, strict=True), move.schema.types, strict=True)
                    yield pa.record_batch([_array(*each) for each in columns], schema=move.schema)

    return select


def _array(column: tuple[Any, ...], wanted: pa.DataType) -> pa.Array:
    """Return the column as an array. Times are given as microseconds."""
    if pa.types.is_timestamp(wanted):
        return pa.array(column, pa.int64()).cast(wanted)
    if pa.types.is_list(wanted) and pa.types.is_timestamp(wanted.value_type):
        return pa.array(column, pa.list_(pa.int64())).cast(wanted)
    return pa.array(column, wanted)


def _writer(move: Move) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that stores the rows of a task in one file, and yields a row of _FILES."""

    def write(batches: Batches) -> Batches:
        body = io.BytesIO()
        with pq.ParquetWriter(
            body, move.schema, compression="zstd", compression_level=_LEVEL, use_dictionary=list(move.by_dictionary),
            column_encoding=dict(move.encodings), write_page_checksum=True, store_schema=False,
        ) as file:  # fmt: skip
            rows = 0
            for batch in batches:
                file.write_batch(batch.cast(move.schema))
                rows += batch.num_rows
        if rows:
            content = body.getvalue()
            path = move.paths[TaskContext.get().partitionId()]
            storage, place = files_for(move.root), f"{move.root}/{path}"
            storage.make_directory(place.rpartition("/")[0])
            storage.write_durably(place, content)
            row = [path, len(content), hashlib.sha256(content).hexdigest(), footer_sha256(content)]
            yield pa.record_batch([pa.array([each]) for each in row], ["path", "size", "sha256", "footer_sha256"])

    return write


def footer_sha256(content: bytes) -> str:
    """Return the SHA-256 of a Parquet file's footer, which has the positions of all data."""
    end = len(content) - _TAIL
    length = int.from_bytes(content[end : end + 4], "little")
    return hashlib.sha256(content[end - length :]).hexdigest()


def _read(spark: SparkSession, root: str, schema: pa.Schema, files: Mapping[str, str]) -> DataFrame:
    """Return all rows of the files, with the `path` of each. A file with another SHA-256 raises OSError."""
    known = list(files.items())

    def read(batches: Batches) -> Batches:
        for path, sha256 in _of(known, batches):
            content = files_for(root).read(f"{root}/{path}")
            if hashlib.sha256(content).hexdigest() != sha256:
                raise OSError(f"{root}/{path} does not have the content that was written")
            with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
                for batch in file.iter_batches(ROWS_A_GROUP):
                    yield batch.cast(schema).append_column("path", pa.repeat(path, batch.num_rows))

    return _tasks(spark, known).mapInArrow(read, f"{spark_schema(schema)}, path string")


def _described(spark: SparkSession, move: Move, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read the files back and describe the rows of each: their number, `hashes`, keys, times, and numbers by run.

    `until` is right after the last time.
    """
    run = sf.col("run_id") if "run_id" in move.schema.names else sf.lit(None).cast("long")
    by_run = _read(spark, move.root, move.schema, files).groupBy("path", run.alias("run")).agg(
        sf.count("*").alias("rows"),
        _sum_of_hashes(move.schema).alias("hashes"),
        sf.min("id").alias("least_id"),
        sf.max("id").alias("greatest_id"),
        sf.min(move.time).alias("since"),
        sf.max(move.time).alias("last"),
    )  # fmt: skip
    found = by_run.groupBy("path").agg(
        sf.sum("rows").alias("rows"),
        sf.sum("hashes").alias("hashes"),
        sf.min("least_id").alias("least_id"),
        sf.max("greatest_id").alias("greatest_id"),
        sf.min("since").alias("since"),
        sf.timestamp_micros(sf.unix_micros(sf.max("last")) + 1).alias("until"),
        sf.collect_list("run").alias("runs"),
        sf.collect_list(sf.when(sf.col("run").isNotNull(), sf.col("rows"))).alias("rows_by_run"),
    )
    return list(found.toArrow().to_pylist())


def _digest(rows: DataFrame, schema: pa.Schema) -> tuple[int, int]:
    """Return the number of rows and the sum of the hashes of their values, which does not depend on their order."""
    (row,) = rows.agg(sf.count("*").alias("rows"), _sum_of_hashes(schema).alias("hashes")).collect()
    return row["rows"], int(row["hashes"] or 0)


def _sum_of_hashes(schema: pa.Schema) -> Column:
    """Return the sum of one hash per row.

    Spark's hash ignores null values. So the hash also includes which values are null, and lists are hashed as text, in
    which null elements appear.
    """
    values = [sf.col(each.name).cast("string") if pa.types.is_list(each.type) else sf.col(each.name) for each in schema]
    nulls = [sf.col(each.name).isNull() for each in schema]
    return sf.sum(sf.xxhash64(*values, *nulls).cast("decimal(38,0)"))
