"""The history pipeline on a separate Spark: rows per second, scaling, size of roll-ups, and the time for a chart.

Each figure is compared with plain SQL in the same run. This is a part of `python -m bench history`.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from bench.checkpoint_rows import Size, fill
from bench.figures import Figure, elapsed_s
from bench.processor_time import PARTS, used

CORES = 2
WARM_UP = 20_000
# Each job has one checkpoint a minute. The number of jobs follows from the number of rows.
DAYS, A_DAY = 7, 1440
SHARES = (0.25, 0.5, 1.0)
JOBS, YEAR = 1000, 365
INCREMENTAL_JOBS, AN_HOUR, INCREMENTAL_ROUNDS = 500, 360, 3
OPERATORS, JOBS_WITH_OPERATORS = 3, 10
CHARTS = 7
MEASURED = 20_000  # roll-ups
WANTED = (0.5, 0.95)
GB = 1e9
_FIGURES = ("end_to_end_duration", "alignment_max", "start_delay_max", "state_size", "checkpointed_size",
            "processed_data")  # fmt: skip
_WIDTHS = {"minute": 60, "hour": 3600, "day": 86_400}

# The same figures without sketches: exact quantiles for each hour.
_SAME_BY_SQL = f"""
CREATE TABLE plain_rollup AS
SELECT r.job_id, date_trunc('hour', c.triggered_at) AS start, count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
       count(*) FILTER (WHERE status = 'FAILED') AS failed, {
    ", ".join(
        f"sum({name}) AS {name}_sum, min({name}) AS {name}_min, max({name}) AS {name}_max,"
        f" percentile_disc(ARRAY[0.5, 0.9, 0.95, 0.99]) WITHIN GROUP (ORDER BY {name})"
        f" FILTER (WHERE status = 'COMPLETED') AS {name}_q"
        for name in _FIGURES
    )
}
FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id GROUP BY 1, 2
"""
_CHART_BY_SQL = """
SELECT date_trunc('day', c.triggered_at), count(*), percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP
       (ORDER BY end_to_end_duration) FILTER (WHERE status = 'COMPLETED')
FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
WHERE r.job_id = %s AND c.triggered_at >= %s AND c.triggered_at < %s GROUP BY 1 ORDER BY 1
"""
Run = Callable[..., None]


def measure(connection: Any, dsn: str, rows: int, end: datetime) -> list[Figure]:
    """Return the figures. The database must be migrated and empty."""
    with pipeline(dsn) as run:
        fill(connection, Size(jobs=20, checkpoints=WARM_UP, days=DAYS, end=end))
        run()  # warm up the JVM and the Python workers
        figures = _speed(connection, run, rows, end)
        figures += _incremental_runs(connection, run, end)
        figures += _with_operators(connection, run, end)
        figures += _sizes(connection)
        return figures + _charts(connection, run, rows, end)


def _speed(connection: Any, run: Run, rows: int, end: datetime) -> list[Figure]:
    """Measure growing numbers of rows. Each run processes all rows from the beginning, into an empty table."""
    there, times, processors = [WARM_UP], [], []
    for share in SHARES:
        jobs = max(1, round((rows * share - there[-1]) / (DAYS * A_DAY)))
        there.append(there[-1] + fill(connection, Size(jobs=jobs, checkpoints=jobs * DAYS * A_DAY, days=DAYS, end=end)))
        connection.execute("TRUNCATE monitoring_rollup")
        before = used()
        times.append(elapsed_s(run))
        processors.append({part: seconds - before[part] for part, seconds in used().items()})
    by_sql = elapsed_s(partial(connection.execute, _SAME_BY_SQL))
    most, least = there[-1], there[1]
    further = (most - least) / (times[-1] - times[0])
    each = {part: (processors[-1][part] - processors[0][part]) / (most - least) * 1e6 for part in PARTS}
    return [
        *(
            Figure("pipeline", count / took, "rows/s", case=f"{count:,} rows")
            for count, took in zip(there[1:], times, strict=True)
        ),
        Figure("pipeline, further rows", further, "rows/s", 50_000, at_most=False),
        # The goal means 50,000 rows per second on two idle cores.
        Figure("processor time of a further row", sum(each.values()), "µs", 1e6 * CORES / 50_000),
        *(Figure("processor time by part", each[part], "µs", case=part) for part in PARTS),
        Figure("time grows with rows to the power of", _power(there[1:], times), "", 1.1),
        Figure("one SQL statement, hours only, exact quantiles", most / by_sql, "rows/s"),
        Figure("time against that", times[-1] / by_sql, "×"),
    ]


def _incremental_runs(connection: Any, run: Run, end: datetime) -> list[Figure]:
    """Measure the update of roll-ups each minute, in the middle of an hour, for jobs with a checkpoint every 10 s."""
    last = end.replace(minute=30, second=0, microsecond=0) - timedelta(hours=1)
    fill(connection, Size(jobs=INCREMENTAL_JOBS, checkpoints=INCREMENTAL_JOBS * AN_HOUR // 2, days=1 / 48, end=last))
    run(from_scratch=False)
    taken_for = []
    for _ in range(INCREMENTAL_ROUNDS):
        connection.execute(_CHANGE, [last - timedelta(minutes=1), last, INCREMENTAL_JOBS])
        before = used()
        wall = elapsed_s(partial(run, from_scratch=False))
        taken_for.append((wall, {part: seconds - before[part] for part, seconds in used().items()}))
    wall, processors = sorted(taken_for, key=lambda each: sum(each[1].values()))[INCREMENTAL_ROUNDS // 2]
    return [
        Figure(f"update of {INCREMENTAL_JOBS:,} jobs after half an hour", wall, "s"),
        Figure("processor time by job", 1e3 * sum(processors.values()) / INCREMENTAL_JOBS, "ms"),
        *(
            Figure("processor time by job and part", 1e3 * processors[part] / INCREMENTAL_JOBS, "ms", case=part)
            for part in PARTS
        ),
    ]


_CHANGE = """
UPDATE monitoring_checkpoint SET end_to_end_duration = end_to_end_duration + 1
WHERE triggered_at > %s AND triggered_at <= %s AND run_id IN (SELECT current_run_id FROM monitoring_job ORDER BY id DESC
    LIMIT %s)
"""


def _with_operators(connection: Any, run: Run, end: datetime) -> list[Figure]:
    """Measure the same checkpoints without and then with operators."""
    checkpoints = JOBS_WITH_OPERATORS * DAYS * A_DAY
    fill(connection, Size(jobs=JOBS_WITH_OPERATORS, checkpoints=checkpoints, days=DAYS, end=end))
    without = elapsed_s(partial(run, from_scratch=False))
    connection.execute(_OPERATORS, [JOBS_WITH_OPERATORS, OPERATORS])
    connection.execute("ANALYZE monitoring_operatorcheckpoint")
    with_operators = elapsed_s(partial(run, from_scratch=False))
    return [
        Figure(f"{checkpoints:,} checkpoints, by operators of each", without, "s", case="0"),
        Figure(f"{checkpoints:,} checkpoints, by operators of each", with_operators, "s", case=f"{OPERATORS}"),
    ]


# Also marks the checkpoints as changed.
_OPERATORS = """
WITH changed AS (
    UPDATE monitoring_checkpoint SET end_to_end_duration = end_to_end_duration + 1
    WHERE run_id IN (SELECT current_run_id FROM monitoring_job ORDER BY id DESC LIMIT %s)
    RETURNING id, triggered_at, end_to_end_duration, state_size, checkpointed_size
)
INSERT INTO monitoring_operatorcheckpoint
       (checkpoint_id, triggered_at, vertex_id, name, position, num_subtasks, num_acknowledged_subtasks,
        end_to_end_duration, state_size, checkpointed_size, subtask_ack_at, subtask_end_to_end,
        subtask_checkpointed_size, subtask_state_size, subtask_sync, subtask_async, subtask_alignment,
        subtask_start_delay, subtask_processed, subtask_persisted, subtask_unaligned, subtask_aborted)
SELECT id, triggered_at, md5(n::text), 'operator ' || n, n, 8, 8, end_to_end_duration, state_size / n,
       checkpointed_size / n, array_fill(triggered_at, ARRAY[8]), figures, figures, figures, figures, figures, figures,
       figures, figures, figures, array_fill(false, ARRAY[8]), array_fill(false, ARRAY[8])
FROM changed CROSS JOIN generate_series(1, %s) n
CROSS JOIN LATERAL (SELECT array_fill(end_to_end_duration, ARRAY[8]) AS figures) subtasks
"""


def _power(rows: Sequence[int], times: Sequence[float]) -> float:
    """Return the exponent of the growth of time with rows: 1 is linear, less means that a part of it is constant."""
    slope, _ = statistics.linear_regression([log(each) for each in rows], [log(each) for each in times])
    return slope


def _sizes(connection: Any) -> list[Figure]:
    """Return the sizes of roll-ups of full minutes, hours and days."""
    from monitoring.history.forgetting import hours_kept
    from monitoring.history.pipeline.columns import MINUTES_KEPT_S

    each, of_operator = (
        {name: _bytes_each(connection, table, seconds) for name, seconds in _WIDTHS.items()}
        for table in ("monitoring_rollup", "monitoring_operatorrollup")
    )
    rows = {
        "minute": MINUTES_KEPT_S // 60,
        "hour": hours_kept().days * 24,
        "day": YEAR,
    }
    whole = {name: each[name] * rows[name] * JOBS / GB for name in _WIDTHS}
    return [
        *(Figure("roll-up", each[name], "bytes", case=name) for name in _WIDTHS),
        *(Figure("roll-up of an operator", of_operator[name], "bytes", case=name) for name in _WIDTHS),
        Figure(
            "roll-ups of an operator for a year", sum(of_operator[name] * rows[name] for name in _WIDTHS) / 1e6, "MB"
        ),
        *(Figure(f"roll-ups of {JOBS:,} jobs", whole[name], "GB", case=f"{rows[name]:,} {name}s") for name in _WIDTHS),
        Figure(f"roll-ups of {JOBS:,} jobs for a year", sum(whole.values()), "GB", 3),
        Figure(
            "with every hour kept",
            whole["minute"] + whole["day"] + each["hour"] * YEAR * 24 * JOBS / GB,
            "GB",
        ),
    ]


def _bytes_each(connection: Any, table: str, seconds: int) -> float:
    """Return the size of a roll-up in a separate table, with indexes.

    The rows are repeated until the table is so large that a single page does not matter.
    """
    from monitoring.history.pipeline.columns import OPERATOR_ROLLUPS, ROLLUPS

    schema = ROLLUPS if table == "monitoring_rollup" else OPERATOR_ROLLUPS
    connection.execute("DROP TABLE IF EXISTS measured")
    connection.execute(f"CREATE TABLE measured (LIKE {table} INCLUDING ALL)")
    options = connection.execute("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [table]).fetchone()[0]
    if options:
        connection.execute(f"ALTER TABLE measured SET ({', '.join(options)})")
    full = f"FROM {table} WHERE seconds = {seconds} AND completed >= 0.8 * seconds / 60"
    (there,) = connection.execute(f"SELECT count(*) {full}").fetchone()
    columns = ", ".join(name for name in schema.names if name != "job_id")
    jobs = f"(SELECT job_id + n * 1000000 AS job, r.* FROM (SELECT * {full}) r, generate_series(1, %s) n) repeated"
    chosen = f"SELECT job, {columns} FROM {jobs} ORDER BY job, start"
    connection.execute(f"INSERT INTO measured (job_id, {columns}) {chosen}", [-(-MEASURED // there)])
    size, count = connection.execute("SELECT pg_total_relation_size('measured'), count(*) FROM measured").fetchone()
    return float(size / count)


def _charts(connection: Any, run: Run, rows: int, end: datetime) -> list[Figure]:
    """Measure charts of a year from roll-ups and from checkpoints, for jobs with few and with many checkpoints."""
    figures = []
    for count in (rows // 30, rows // 6):
        fill(connection, Size(jobs=1, checkpoints=count, days=YEAR, end=end))
        run(from_scratch=False)
        from monitoring.models import Job

        job = Job.objects.latest("pk")
        since = end - timedelta(days=YEAR)
        by_rollups, by_sql = _chart_ms(connection, job, since, end)
        figures += [
            Figure("chart of a year, by checkpoints", by_rollups, "ms", 300, case=f"{count:,}"),
            Figure("by SQL over the checkpoints", by_sql, "ms", case=f"{count:,}"),
        ]
    return figures


def _chart_ms(connection: Any, job: Any, since: datetime, end: datetime) -> tuple[float, float]:
    from monitoring.history.quantiles import series

    days = series(job, since, end, "duration", WANTED)
    found = connection.execute(_CHART_BY_SQL, [job.pk, since, end]).fetchall()
    counted = [day.counts["completed"] + day.counts["failed"] for day in days]
    if counted != [row[1] for row in found]:
        sys.exit("the roll-ups differ from the checkpoints")
    by_rollups = [elapsed_s(lambda: series(job, since, end, "duration", WANTED)) for _ in range(CHARTS)]
    by_sql = [
        elapsed_s(lambda: connection.execute(_CHART_BY_SQL, [job.pk, since, end]).fetchall()) for _ in range(CHARTS)
    ]
    return statistics.median(by_rollups) * 1000, statistics.median(by_sql) * 1000


@contextmanager
def pipeline(dsn: str) -> Iterator[Run]:
    """Yield a function that runs the program on all rows, or, with `from_scratch=False`, on new rows."""
    from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
    from checkpointing.sinks.conformance import PlayedJob
    from checkpointing.spark.job import make_importable_for_workers
    from checkpointing.spark.program import load_program
    from checkpointing.spark.session import start_session
    from monitoring.history.packing import ENTRY_CLASS, pack

    with tempfile.TemporaryDirectory(prefix="waymark-pipeline-", ignore_cleanup_errors=True) as directory:
        place, work = Path(directory), WorkDirectory(Path(directory) / "work")
        (place / "dsn").write_text(dsn)
        settings = {**session_settings(work, CORES, {}), "spark.eventLog.enabled": "false"}
        spark = start_session("history", settings, work)
        program = load_program(pack(place / "waymark_history.zip"), ENTRY_CLASS, place)
        make_importable_for_workers(spark, program)
        job, location = PlayedJob(), place / "checkpoint"

        def run(*, from_scratch: bool = True) -> None:
            if from_scratch:
                shutil.rmtree(location, ignore_errors=True)
                job.start(f"run-{time.monotonic_ns()}")
            else:
                job.next_attempt()
            writer = program.function(spark, {"dsn-file": str(place / "dsn")})
            query = writer.option("checkpointLocation", str(location)).trigger(availableNow=True).start()
            query.awaitTermination()

        try:
            yield run
        finally:
            spark.stop()
