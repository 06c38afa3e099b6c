"""The archive: the size of a week of the history in it, and the time to write, verify and read the week."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median

import psutil

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

    from checkpointing.state_reading.session import reading_session
    from monitoring.history.archive import spans
    from monitoring.history.archive.moving import Mover, set_state
    from monitoring.history.catalogue import day_range
    from monitoring.history.partitions import TABLES, partitions_of
    from monitoring.models import ArchivedKind, ArchivedState
    from monitoring.reasons.work import WorkReason

    week = next(each for each in partitions_of(TABLES[0])[2:] if each.start and each.end)
    assert week.start is not None
    assert week.end is not None
    pieces = spans.pieces_of(spans.Span(week.start, week.end, {ArchivedKind.CHECKPOINTS: week.name}))
    with (
        tempfile.TemporaryDirectory(prefix="waymark-archive-", dir="/tmp") as directory,
        reading_session() as spark,
        Mover() as mover,
    ):
        settings.ARCHIVE = directory
        spark.range(1).count()
        began = time.perf_counter()
        with _peak_memory() as memory:
            files = [
                file
                for piece in pieces
                for file in mover.move(piece.month, piece.partition, [day_range(day) for day in piece.days])
            ]
        took = time.perf_counter() - began
        set_state(files, ArchivedState.LIVE, WorkReason.MONTH_CHANGED(month=week.start.date()))
        rows = sum(file.rows for file in files)
        archived = sum(file.size for file in files)
        reads = [_ms(run) for run in files[0].runs[:PROBES]]
    return [
        Figure(f"a row in the archive, of {rows:,} of a week", archived / rows, "bytes"),
        Figure("a row in PostgreSQL, its indexes included", week.size / rows, "bytes"),
        Figure("size in PostgreSQL against the archive", week.size / archived, "×", 10, at_most=False),
        Figure("written and compared by Spark, on two cores", rows / took, "rows/s"),
        Figure("the most memory of the process and its Spark meanwhile", max(memory) / 2**20, "MiB"),
        Figure(f"the newest page of a job's archived checkpoints (median of {PROBES})", median(reads), "ms"),
    ]


@contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Yield a list that gets the memory (PSS, bytes) of this process, Spark's JVM and its workers, again and again."""
    found, ended = list[int](), threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            found.append(sum(map(_memory, [this, *this.children(recursive=True)])))

    this, looking = psutil.Process(), threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.name().startswith(("python", "java")):  # not PostgreSQL
            return int(process.memory_full_info().pss)
    return 0


def _ms(run: int) -> float:
    from monitoring.history.archive import reading
    from monitoring.models import Run

    job = Run.objects.select_related("job").get(pk=run).job
    began = time.perf_counter()
    reading.checkpoints(job, [], None, upwards=False, limit=25)
    return (time.perf_counter() - began) * 1000
