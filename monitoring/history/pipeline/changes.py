"""A streaming source of checkpoints: it reads all checkpoints of every hour of a job in which any of them changed.

Each checkpoint is a row, and so is each of its operators (columns.CHANGES).

The offset is a transaction number below which every transaction has ended (pg_snapshot_xmin of the current snapshot).
All changes before it are visible; running transactions have higher numbers and are read later. So no change is skipped,
even if transactions take long or commit out of order. Within a range of numbers, the work is divided by (day, job): the
first reading of years of history comes in batches, and one batch has all changed hours of a job's day.

Archived days are skipped: archiving makes their roll-ups, and PostgreSQL has only some of their rows. Of days whose
hourly roll-ups are deleted, all hours are read, because their roll-up is computed from them.

One statement reads a whole hour. It may already contain later changes, which are then read again. A deleted checkpoint
leaves a row in monitoring_checkpointdeletion, so that its hour is computed again, too.

Offsets: {"done": number} or, within a range, {"done": …, "until": number, "day": seconds, "job": id}, which includes
that day of that job. Each has the "program" that wrote it: another version of the program reads everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from .checkpoints import HOUR_OF, checkpoints_of, connected, copied
from .columns import ARCHIVED, CHANGES, DAY, HOUR, PROGRAM, spark_schema

log = logging.getLogger(__name__)

ROWS_PER_BATCH = 1_000_000
ROWS_PER_PARTITION = 100_000
Offset = Mapping[str, int]

_HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_PROGRESS = """
INSERT INTO monitoring_rollupprogress (id, done, at, program) VALUES (1, %s, now(), %s)
ON CONFLICT (id) DO UPDATE SET done = excluded.done, at = excluded.at, program = excluded.program
"""
# Rows are counted by hour before the joins, because there are many rows and few hours.
_TOUCHED = f"""
COPY (
    SELECT h.hour, t.job_id, sum(CASE WHEN h.hour = t.hour THEN t.rows ELSE 0 END)::bigint FROM (
        SELECT g.hour, r.job_id, g.rows FROM (
            SELECT {HOUR_OF.format(at="triggered_at")} AS hour, run_id, count(*) AS rows
            FROM monitoring_checkpoint WHERE {{changed}} GROUP BY 1, 2
        ) g JOIN monitoring_run r ON r.id = g.run_id
        UNION ALL
        SELECT {HOUR_OF.format(at="triggered_at")}, job_id, count(*) FROM monitoring_checkpointdeletion
        WHERE {{deleted}} GROUP BY 1, 2
    ) t JOIN monitoring_job j ON j.id = t.job_id
    CROSS JOIN (
        SELECT coalesce((SELECT date_part('epoch', hours_from) FROM monitoring_rollupprogress), 0)::bigint AS hours_from
    ) p
    CROSS JOIN LATERAL (
        SELECT t.hour WHERE t.hour >= p.hours_from
        UNION ALL
        SELECT generate_series(t.hour / {DAY} * {DAY}, t.hour / {DAY} * {DAY} + {DAY - HOUR}, {HOUR})
        WHERE t.hour < p.hours_from
    ) h
    WHERE NOT {ARCHIVED.format(cluster="j.cluster_id", at="to_timestamp(t.hour)")}
    GROUP BY 1, 2 ORDER BY h.hour / {DAY}, t.job_id, h.hour
) TO STDOUT (FORMAT csv)
"""  # noqa: S608 (constants only)


@dataclass(frozen=True)
class Touched:
    """Hours of jobs, each with the number of changed rows, sorted by day and job."""

    hours: Any
    jobs: Any
    rows: Any

    def after(self, offset: Offset) -> Touched:
        return self._where(~self._up_to(offset)) if "until" in offset else self

    def until(self, offset: Offset) -> Touched:
        return self._where(self._up_to(offset)) if "until" in offset else self

    @property
    def days(self) -> Any:
        return self.hours // DAY * DAY

    def end_of(self, most: int) -> tuple[int, int] | None:
        """Return the day and job at which `most` rows are reached, or None if all rows are fewer."""
        reached = int(np.searchsorted(np.cumsum(self.rows), most))
        if reached >= len(self.rows) - 1:
            return None
        return int(self.days[reached]), int(self.jobs[reached])

    def shares(self, most: int) -> Any:
        """Return the task number of each hour. It increases about every `most` rows."""
        return np.cumsum(self.rows) // most

    def _up_to(self, offset: Offset) -> Any:
        day, job = offset["day"], offset["job"]
        return (self.days < day) | ((self.days == day) & (self.jobs <= job))

    def _where(self, which: Any) -> Touched:
        return Touched(self.hours[which], self.jobs[which], self.rows[which])


class CheckpointChanges(DataSource):  # type: ignore[misc]
    """The source of `readStream.format("waymark-checkpoint-changes")`.

    Option `dsn-file`: a file with the database's address on every machine of the job. `rows-per-batch` and
    `rows-per-partition` limit the rows of a batch and of a task.
    """

    @classmethod
    def name(cls) -> str:
        return "waymark-checkpoint-changes"

    def schema(self) -> str:
        return spark_schema(CHANGES)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        if "dsn-file" not in self.options:
            raise ValueError("option dsn-file: the path of a file that holds the database's address is missing")
        limits = (
            _positive(self.options, "rows-per-batch", ROWS_PER_BATCH),
            _positive(self.options, "rows-per-partition", ROWS_PER_PARTITION),
        )
        return CheckpointChangesReader(self.options["dsn-file"], *limits)


class CheckpointChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(
        self, dsn_file: str, rows_per_batch: int = ROWS_PER_BATCH, rows_per_partition: int = ROWS_PER_PARTITION
    ) -> None:
        self._dsn_file = dsn_file
        self._limit = rows_per_batch
        self._share = rows_per_partition
        self._seen: tuple[tuple[int, int], Touched] | None = None
        self._stored_progress: int | None = None
        self._available: int | None = None  # the last transaction number with Trigger.AvailableNow

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        return {"done": 0, "program": PROGRAM}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with connected(self._dsn_file) as connection:
            self._available = _horizon(connection)

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch, or `start`, the end of the last batch, if nothing has changed."""
        if start.get("program") != PROGRAM:
            log.warning("this is version %d of the program, and not the one before: all is read again", PROGRAM)
            return self.initialOffset()
        with connected(self._dsn_file) as connection:
            self._store_progress(connection, start["done"])
            done, until = start["done"], start.get("until") or self._available or _horizon(connection)
            if until < done:
                log.warning("the database's transactions are at %d, not at %d: all is read again", until, done)
                return self.initialOffset()
            left = self._touched(connection, done, until).after(start)
        through = {"done": until, "program": PROGRAM}
        if not len(left.rows):
            return through if "until" in start else start
        end = left.end_of(self._limit)
        return through if end is None else {**start, "done": done, "until": until, "day": end[0], "job": end[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begins, until = start["done"], end.get("until", end["done"])
        if until < begins or start.get("program") != PROGRAM:
            return []  # the next batch reads everything from the beginning, see latestOffset
        with connected(self._dsn_file) as connection:
            touched = self._touched(connection, begins, until).after(start).until(end)
        return list(_shares(touched, self._share, begins))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        jobs, hours, since = partition.value
        with connected(self._dsn_file) as connection:
            yield from checkpoints_of(connection, jobs, hours, since).to_batches(max_chunksize=10_000)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing. Spark calls this only with the next batch, which may come much later."""

    def _store_progress(self, connection: psycopg.Connection[Any], done: int) -> None:
        """Store that the roll-ups of all changes before `done` are complete, so that readers skip these changes.

        While everything is read again, the roll-ups that an older program made remain valid.
        """
        if done and done != self._stored_progress:
            connection.execute(_PROGRESS, [done, PROGRAM])
            self._stored_progress = done

    def _touched(self, connection: psycopg.Connection[Any], done: int, until: int) -> Touched:
        if self._seen is None or self._seen[0] != (done, until):
            self._seen = (done, until), _touched(connection, done, until)
        return self._seen[1]


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"option {name}: {text!r} is not allowed; a whole number of at least 1 is expected")
    return int(text)


def _horizon(connection: psycopg.Connection[Any]) -> int:
    return int(connection.execute(_HORIZON).fetchall()[0][0])


def _touched(connection: psycopg.Connection[Any], done: int, until: int) -> Touched:
    """Return the changed hours. With `done` 0, return all hours, including those with another server's numbers."""
    between = "{column} >= {done} AND {column} < {until}" if done else "TRUE"
    changed, deleted = (
        sql.SQL(between).format(column=sql.SQL(column), done=sql.Literal(done), until=sql.Literal(until))
        for column in ("changed_in", "deleted_in")
    )
    schema = pa.schema([("hour", pa.int64()), ("job", pa.int64()), ("rows", pa.int64())])
    found = copied(connection, sql.SQL(_TOUCHED).format(changed=changed, deleted=deleted), schema)
    return Touched(*(column.to_numpy() for column in found.columns))


def _shares(touched: Touched, rows: int, since: int) -> Iterator[InputPartition]:
    if not len(touched.rows):
        return
    places = touched.shares(rows)
    for share in np.unique(places):
        which = places == share
        yield InputPartition((touched.jobs[which].tolist(), touched.hours[which].tolist(), since))
