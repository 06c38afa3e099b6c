"""Fill PostgreSQL with a realistic history of any size, for the benchmarks of pages and of the pipeline.

`python -m bench.checkpoint_rows postgresql://… --jobs 1000 --checkpoints 10000000` fills a database, and migrates it
first if needed. The same arguments give the same rows.

Jobs differ in duration and state size by several powers of ten. Both vary with the time of day and the day of the week.
State grows until the run ends, after two weeks. Durations are distributed log-normally, and one in two hundred is ten
times as long. One checkpoint in a hundred fails, mostly in storms. Each day has a savepoint. The last row is at `end`.
"""

from __future__ import annotations

import argparse
import io
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

CHUNK = 200_000
DAY_S = 86_400
_REASONS = (
    "Checkpoint expired before completing.",
    "Asynchronous task checkpoint failed. Caused by: java.io.IOException: disk",
    "Checkpoint Coordinator is suspending.",
)
_COLUMNS = (
    *("run_id", "checkpoint_id", "status", "is_savepoint", "checkpoint_type", "savepoint_format", "triggered_at"),
    *("latest_ack_at", "failed_at", "failure_message", "end_to_end_duration", "checkpointed_size", "state_size"),
    *("processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks", "external_path", "discarded"),
    *("alignment_max", "start_delay_max", "sync_max", "async_max", "final", "first_seen_at", "changed_in"),
)


@dataclass(frozen=True)
class Size:
    """The size of a history. `checkpoints` of all jobs are spread over `days` before `end`. A run lasts two weeks."""

    jobs: int = 1000
    checkpoints: int = 1_000_000
    days: float = 60.0
    end: datetime = datetime(2026, 11, 21, 12, tzinfo=UTC)

    @property
    def per_job(self) -> int:
        return max(1, self.checkpoints // self.jobs)

    @property
    def interval_s(self) -> float:
        return self.days * DAY_S / self.per_job


def fill(connection: Any, size: Size, *, seed: int = 7) -> int:
    """Write the history through a psycopg connection, with a transaction for each chunk. Return the number of rows."""
    written = 0
    for rows in made(size, seed=seed):
        copy(connection, rows)
        written += rows.num_rows
    connection.execute("ANALYZE monitoring_checkpoint")
    return written


def made(size: Size, *, seed: int = 7) -> Iterator[pa.Table]:
    """Create the jobs, their runs and all partitions. Return chunks of checkpoint rows, ordered by time."""
    from monitoring.history.partitions import cover

    cover(size.end - timedelta(days=size.days))
    return _tables(size, _make_jobs(size), seed)


def copy(connection: Any, rows: pa.Table, table: str = "monitoring_checkpoint") -> None:
    body = io.BytesIO()
    pacsv.write_csv(rows, body, pacsv.WriteOptions(include_header=False))
    with connection.transaction(), connection.cursor() as cursor:
        statement = f"COPY {table} ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT csv, NULL '')"
        with cursor.copy(_not_null(statement)) as into:
            into.write(body.getvalue())


def _not_null(statement: str) -> str:
    texts = "savepoint_format, failure_message, external_path"
    return statement.replace("NULL ''", f"NULL '', FORCE_NOT_NULL ({texts})")


def _make_jobs(size: Size) -> np.ndarray:
    """Create the jobs and runs. Return the keys of the runs by job and two-week period, the oldest first."""
    from monitoring.models import Cluster, Job, Run

    fortnights = max(1, round(size.days / 14))
    cluster = Cluster.objects.create(
        name=f"bench-{uuid.uuid4().hex[:6]}", rest_url="http://127.0.0.1:1/", enabled=False
    )
    jobs = Job.objects.bulk_create([Job(cluster=cluster, name=f"job-{n:05d}") for n in range(size.jobs)])
    start = size.end - timedelta(days=size.days)
    span = timedelta(days=size.days) / fortnights
    runs = []
    for job in jobs:
        for number in range(fortnights):
            last = number == fortnights - 1
            runs.append(
                Run(
                    job=job,
                    number=number + 1,
                    engine_job_id=uuid.uuid4().hex,
                    state="RUNNING" if last else "CANCELED",
                    observed_at=size.end,
                    started_at=start + number * span,
                    ended_at=None if last else start + (number + 1) * span,
                    final_read_done=not last,
                )
            )
    made = Run.objects.bulk_create(runs, batch_size=2000)
    newest = [made[(n + 1) * fortnights - 1] for n in range(size.jobs)]
    for job, run in zip(jobs, newest, strict=True):
        job.current_run = run
    Job.objects.bulk_update(jobs, ["current_run"], batch_size=2000)
    return np.array([run.pk for run in made]).reshape(size.jobs, fortnights)


def _tables(size: Size, runs: np.ndarray, seed: int) -> Iterator[pa.Table]:
    """Yield chunks with the checkpoints of all jobs, ordered by time as a poll would store them."""
    dice = np.random.default_rng(seed)
    base_ms = 10 ** dice.uniform(1.5, 4.5, size.jobs)
    base_bytes = 10 ** dice.uniform(4, 10, size.jobs)
    steps = max(1, CHUNK // size.jobs)
    for first in range(0, size.per_job, steps):
        numbers = np.arange(first, min(first + steps, size.per_job))
        yield _table(size, runs, numbers, base_ms, base_bytes, dice)


def _table(
    size: Size, runs: np.ndarray, numbers: np.ndarray, base_ms: np.ndarray, base_bytes: np.ndarray, dice: Any
) -> pa.Table:
    count = len(numbers) * size.jobs
    job = np.tile(np.arange(size.jobs), len(numbers))
    number = np.repeat(numbers, size.jobs)
    start = size.end.timestamp() - size.days * DAY_S
    second = start + (number + 1) * size.interval_s - dice.uniform(0, 0.9, count) * size.interval_s
    micros = (second * 1e6).astype("int64")
    run_index = (number * runs.shape[1] // size.per_job).astype("int64")
    busy = 1 + 0.5 * np.sin(2 * np.pi * (second % DAY_S) / DAY_S) + 0.2 * (np.floor(second / DAY_S) % 7 < 5)
    spike = np.where(dice.random(count) < 0.005, 10.0, 1.0)
    duration = np.maximum(1, base_ms[job] * busy * spike * dice.lognormal(0, 0.4, count)).astype("int64")
    grown = 1 + (number % max(1, size.per_job // runs.shape[1])) / size.per_job
    state = (base_bytes[job] * busy * grown * dice.lognormal(0, 0.02, count)).astype("int64")
    storm = ((np.floor(second / 3600).astype("int64") * 7919 + job * 104_729) % 400) == 0
    failed = dice.random(count) < np.where(storm, 0.6, 0.007)
    per_day = max(1, round(DAY_S / size.interval_s))
    savepoint = (number % per_day) == (job % per_day)
    acknowledged = micros + duration * 1000
    done = ~failed
    subtasks = 1 + job % 16
    reason = dice.choice(len(_REASONS), count, p=(0.7, 0.2, 0.1))

    def known(values: np.ndarray) -> pa.Array:
        """Return the values, with null for failed checkpoints."""
        return pa.array(values.astype("int64"), mask=failed)

    def moments(values: np.ndarray, absent: np.ndarray) -> pa.Array:
        return pa.array(values, pa.timestamp("us", "UTC"), mask=absent)

    def texts(choices: Any, which: np.ndarray) -> pa.Array:
        return pa.array(choices).take(pa.array(which.astype("int64")))

    never = np.zeros(count, bool)
    alignment = duration * dice.beta(1, 6, count)
    delay = duration * dice.beta(1, 9, count)
    synchronous = duration * dice.beta(1, 20, count)
    values = {
        "run_id": pa.array(runs[job, run_index]),
        "checkpoint_id": pa.array(number + 1),
        "status": texts(["COMPLETED", "FAILED"], failed),
        "is_savepoint": pa.array(savepoint),
        "checkpoint_type": texts(["CHECKPOINT", "SAVEPOINT"], savepoint),
        "savepoint_format": texts(["", "CANONICAL"], savepoint),
        "triggered_at": moments(micros, never),
        "latest_ack_at": moments(acknowledged, failed),
        "failed_at": moments(acknowledged, done),
        "failure_message": texts(["", *_REASONS], np.where(failed, reason + 1, 0)),
        "end_to_end_duration": known(duration),
        "checkpointed_size": known(state * dice.beta(1, 12, count)),
        "state_size": known(state),
        "processed_data": known(alignment * 100),
        "persisted_data": known(alignment * 10),
        "num_subtasks": pa.array(subtasks),
        "num_acknowledged_subtasks": pa.array(np.where(failed, subtasks // 2, subtasks)),
        "external_path": _paths(runs[job, run_index], number + 1, failed),
        "discarded": pa.array(done & ~savepoint),
        "alignment_max": known(alignment),
        "start_delay_max": known(delay),
        "sync_max": known(synchronous),
        "async_max": known(duration - alignment - delay - synchronous),
        "final": pa.array(~never),
        "first_seen_at": moments(acknowledged, never),
        "changed_in": pa.array(np.zeros(count, "int64")),
    }
    return pa.table({column: values[column] for column in _COLUMNS})


def _paths(run: np.ndarray, number: np.ndarray, failed: np.ndarray) -> pa.Array:
    """Return paths like those of an engine: the run's id with 32 digits, then the checkpoint's number."""
    ids = pc.utf8_lpad(pa.array(run).cast(pa.string()), 32, "f")
    paths = pc.binary_join_element_wise("file:/checkpoints/", ids, "/chk-", pa.array(number).cast(pa.string()), "")
    return pc.if_else(pa.array(failed), "", paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", help="postgresql://…; it is migrated first")
    parser.add_argument("--jobs", type=int, default=Size.jobs)
    parser.add_argument("--checkpoints", type=int, default=Size.checkpoints, help="of all jobs together")
    parser.add_argument("--days", type=float, default=Size.days, help="over which they are spread")
    parser.add_argument("--end", type=datetime.fromisoformat, default=datetime.now(UTC), help="of the newest")
    given = parser.parse_args()
    os.environ["DATABASE_URL"] = given.database
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django
    import psycopg
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    end = given.end if given.end.tzinfo else given.end.replace(tzinfo=UTC)
    began = time.perf_counter()
    with psycopg.connect(given.database, autocommit=True) as connection:
        written = fill(connection, Size(given.jobs, given.checkpoints, given.days, end))
    took = time.perf_counter() - began
    print(f"{written:,} checkpoints of {given.jobs:,} jobs in {took:,.1f} s: {written / took:,.0f} a second.")


if __name__ == "__main__":
    main()
