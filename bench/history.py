"""The history: writing rows to partitions, roll-ups by the pipeline, and charts, each compared with plain SQL."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench import history_pipeline
from bench.checkpoint_rows import Size, copy, made
from bench.figures import Figure, elapsed_s

SMALL, FULL = 300_000, 3_000_000  # of a thousand jobs
ROLLED_SMALL, ROLLED_FULL = 500_000, 10_000_000  # checkpoints a minute apart
BATCH = 500  # the number of rows that a poll of a large cluster writes
BATCHES = 60
PROBES = 200


def measure(*, full: bool = False) -> list[Figure]:
    with database() as dsn:
        import psycopg

        end = datetime.now(UTC)
        with psycopg.connect(dsn, autocommit=True) as connection:
            figures = history_pipeline.measure(connection, dsn, ROLLED_FULL if full else ROLLED_SMALL, end)
            figures += _by_copy(connection, Size(jobs=1000, checkpoints=FULL if full else SMALL, end=end))
        return [
            *figures,
            Figure("rows as a poll writes them", _by_upsert(), "rows/s", 20_000, at_most=False),
            Figure("newest page of a job's history", _page_ms(), "ms", 20),
        ]


def _by_copy(connection: Any, size: Size) -> list[Figure]:
    """Copy each chunk to the partitioned table, then to a plain table without indexes and triggers."""
    connection.execute("CREATE TABLE plain (LIKE monitoring_checkpoint INCLUDING DEFAULTS INCLUDING IDENTITY)")
    (before,) = connection.execute("SELECT count(*) FROM monitoring_checkpoint").fetchone()
    partitions, plain, rows = 0.0, 0.0, 0
    for chunk in made(size):
        partitions += elapsed_s(partial(copy, connection, chunk))
        plain += elapsed_s(partial(copy, connection, chunk, "plain"))
        rows += chunk.num_rows
    connection.execute("DROP TABLE plain")
    connection.execute("ANALYZE monitoring_checkpoint")
    return [
        Figure("rows by COPY", rows / partitions, "rows/s", 20_000, at_most=False),
        Figure("into a table without indexes and triggers", rows / plain, "rows/s"),
        Figure("time against that", partitions / plain, "×"),
        Figure("row in PostgreSQL with indexes", _scalar(connection, _SIZE) / (before + rows), "bytes"),
    ]


_SIZE = """
SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'monitoring_checkpoint'::regclass
"""


@contextmanager
def database() -> Iterator[str]:
    """Start a PostgreSQL server, set up Django for it, and migrate it."""
    from dashboard.stack.postgres import PostgresServer
    from dashboard.stack.process import running

    with tempfile.TemporaryDirectory(prefix="waymark-history-", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        server = PostgresServer(Path(directory) / "pg")
        with running(server, log=Path(directory) / "postgres.log"):
            os.environ["DATABASE_URL"] = server.dsn()
            os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            yield server.dsn()


def _by_upsert() -> float:
    """Return the rows per second of upserts: one third new, one third that complete, one third unchanged."""
    from django.db import transaction

    from monitoring import bulk
    from monitoring.models import Checkpoint, Run
    from monitoring.polling.rows import CHECKPOINT_COLUMNS, SLOWEST

    runs = list(Run.objects.filter(state="RUNNING").values_list("pk", flat=True)[:BATCH])
    now, key = datetime.now(UTC), ("run_id", "checkpoint_id", "triggered_at")
    taken = 0.0
    for number in range(BATCHES):
        at = now + timedelta(seconds=number // 3)
        done = number % 3 > 0
        rows = [_row(run, 1_000_000 + number // 3, at, now, done=done) for run in runs]
        began = time.perf_counter()
        with transaction.atomic():
            bulk.upsert(Checkpoint, rows, key, CHECKPOINT_COLUMNS, kept=SLOWEST, once=("first_seen_at",))
        taken += time.perf_counter() - began
    return BATCHES * len(runs) / taken


def _row(run: int, number: int, at: datetime, now: datetime, *, done: bool) -> dict[str, Any]:
    figures = {
        "latest_ack_at": at + timedelta(seconds=1),
        **dict.fromkeys(("end_to_end_duration", "alignment_max", "start_delay_max", "sync_max", "async_max"), 900),
        **dict.fromkeys(("checkpointed_size", "state_size", "processed_data", "persisted_data"), 10_000_000),
        "external_path": f"file:/checkpoints/{run}/chk-{number}",
    }
    return {
        "run_id": run,
        "checkpoint_id": number,
        "triggered_at": at,
        "first_seen_at": now,
        "status": "COMPLETED" if done else "IN_PROGRESS",
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "savepoint_format": "",
        "failure_message": "",
        "external_path": "",
        "discarded": False,
        "final": done,
        "num_subtasks": 4,
        "num_acknowledged_subtasks": 4 if done else 0,
        **(figures if done else {}),
    }


def _page_ms() -> float:
    from statistics import median

    from dashboard.queries.history import HistoryFilter, read_history
    from monitoring.models import Job

    taken = []
    for job in Job.objects.order_by("pk")[:PROBES]:
        began = time.perf_counter()
        read_history(job, HistoryFilter(), before=None, after=None)
        taken.append((time.perf_counter() - began) * 1000)
    return median(taken)


def _scalar(connection: Any, statement: str) -> float:
    return float(connection.execute(statement).fetchone()[0])
