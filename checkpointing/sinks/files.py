"""Exactly-once into a directory of files, also for readers who only list it.

    rows.writeStream.foreachBatch(FileSink("/data/payments", "parquet", partition_by=["country"]))

    /data/payments/
        waymark_batch=0/country=NL/part-….parquet       one directory for each batch
        waymark_batch=1/…
        .waymark/                                       hidden, as names with a dot are
            lock, fence                                 who may publish
            aside/<attempt>-…/                          a batch in the making
            abandoned/<timeline>/waymark_batch=7/       a batch that no longer counts, see `lineage`

A batch is written to a hidden directory and appears with one rename, as a whole or not at all. When a job returns to an
older state, its abandoned batches are moved away before the next one appears. A restore of a state that contains them
moves them back. A reader of the directory's partitions sees the batch number as a column.

The sink is for local files, and for network file systems with locks and atomic renames that all machines of the job
see under one absolute path.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from checkpointing.sinks import context
from checkpointing.sinks.context import FencedOut, SinkContext
from checkpointing.sinks.output_directory import BATCH, OutputDirectory, SinkDirectoryTaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FencedOut", "FileSink", "SinkDirectoryTaken"]

log = logging.getLogger(__name__)

FORMATS = ("parquet", "json", "csv", "text", "orc")


class FileSink:
    """A function for `foreachBatch`. A directory belongs to one query.

    `options` are those of the format's writer. FencedOut, SinkDirectoryTaken or OSError end the query; nothing of the
    batch is in the directory then.
    """

    goes_back = True

    def __init__(
        self,
        path: str | Path,
        format: str = "parquet",  # noqa: A002 - Spark's word
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        query: str | None = None,
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f"format={format!r} is not allowed; use one of {', '.join(FORMATS)}")
        if isinstance(partition_by, str):
            raise ValueError(f"partition_by={partition_by!r} is not allowed; a list of column names is expected")
        self._format = format
        self._partition_by = list(partition_by)
        self._options = dict(options or {})
        self._query = query
        self._directory = OutputDirectory(_local(path))
        self._claimed_for: SinkContext | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        job = context.current()
        if BATCH in frame.columns:
            raise ValueError(
                f"the rows have a column {BATCH!r}, which is the name of the sink's own partition column; rename it"
            )
        if self._claimed_for != job:
            self._directory.claim(job, self._query or context.query_of(frame))
            self._claimed_for = job
        else:
            self._directory.check(job)
        if self._directory.has(batch):
            log.info("batch %d of timeline %s is in %s already", batch, job.timeline, self._directory.path)
            # The rows must be computed nevertheless, because only that advances Spark's state.
            frame.write.format("noop").mode("overwrite").save()
            return
        with self._directory.unpublished_path(job, batch) as unfinished:
            writer = frame.write.format(self._format).options(**self._options).partitionBy(*self._partition_by)
            writer.save(f"file://{unfinished}")  # not quoted, because Hadoop's paths are not quoted like a URI's
            self._directory.publish(job, batch, unfinished)


def _local(path: str | Path) -> Path:
    text = str(path).removeprefix("file://") if str(path).startswith("file:///") else str(path)
    text = text.removeprefix("file:")
    if not Path(text).is_absolute():
        raise ValueError(f"path={str(path)!r} is not allowed; an absolute path in the local file system is expected")
    return Path(text)
