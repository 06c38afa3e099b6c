"""The archive: the size of a week of the history in it, and the time to write, verify and read the week."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.checkpoint_rows import Size, fill
from bench.figures import Figure
from bench.history import database

SMALL, FULL = 400_000, 10_000_000
PROBES = 50


def measure(*, full: bool = False) -> list[Figure]:
    with database() as dsn:
        import psycopg

        size = Size(jobs=1000, checkpoints=FULL if full else SMALL, days=28, end=datetime.now(UTC))
        with psycopg.connect(dsn, autocommit=True) as connection:
            fill(connection, size)
        return _of_a_week()


def _of_a_week() -> list[Figure]:
    """Return the figures of the first full week in the history."""
    from django.conf import settings

    from monitoring.history.archive import kinds, spans, writing
    from monitoring.history.partitions import partitions_of
    from monitoring.models import ArchivedKind

    kind = kinds.KINDS[ArchivedKind.CHECKPOINTS]
    week = next(each for each in partitions_of(kind.table)[2:] if each.start and each.end)
    assert week.start is not None
    assert week.end is not None
    planned = spans.cut(spans.Span(week.start, week.end, {kind.name: week.name}))
    with tempfile.TemporaryDirectory(prefix="waymark-archive-", dir="/tmp") as directory:
        settings.ARCHIVE = directory
        began = time.perf_counter()
        drafts = [_written(writing, Path(directory) / f"{n}.parquet", kind, each) for n, each in enumerate(planned)]
        took = time.perf_counter() - began
        rows = sum(draft.rows for draft in drafts)
        archived = sum(draft.path.stat().st_size for draft in drafts)
        reads = [_ms(drafts[len(drafts) // 2], kind, run) for run in list(drafts[0].runs)[:PROBES]]
    return [
        Figure(f"a row in the archive, of {rows:,} of a week", archived / rows, "bytes"),
        Figure("a row in PostgreSQL, its indexes included", week.size / rows, "bytes"),
        Figure("PostgreSQL's size in that of the archive", week.size / archived, "times", 10, at_most=False),
        Figure("written and compared, on one core", rows / took, "rows/s"),
        Figure(f"a job's rows of one file (median of {PROBES})", median(reads), "ms"),
    ]


def _written(writing: Any, path: Path, kind: Any, piece: Any) -> Any:
    draft = writing.write(path, kind, writing.rows_of(piece))
    writing.compare(draft, writing.rows_of(piece))
    return draft


def _ms(draft: Any, kind: Any, run: int) -> float:
    from pyarrow import compute

    from monitoring.history.archive import parquet, reading

    began = time.perf_counter()
    parquet.footer_sha256(draft.path)
    reading.rows_of(draft.path, kind, compute.field("run_id") == run)
    return (time.perf_counter() - began) * 1000
