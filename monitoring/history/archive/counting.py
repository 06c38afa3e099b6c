"""Make roll-ups of an archived day from the archive when its files change: the pipeline skips such days."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyarrow import compute as pc

from monitoring.history.pipeline.columns import CHECKPOINTS, DAY, FIGURES, HOUR, ROLLUPS
from monitoring.history.rolling import rolled
from monitoring.models import Rollup, RollupProgress, Run

_KEY = ("job_id", "seconds", "start")
_REST = [name for name in ROLLUPS.names if name not in _KEY]
_REASON = r"^(?P<reason>[^.:\n]*)"  # the same as columns.REASON
_LONGEST_REASON = 120


def as_read_by_the_pipeline(archived: pa.Table, jobs: Mapping[int, int]) -> pa.Table:
    """Return archived checkpoints in the schema CHECKPOINTS. `jobs` maps runs to jobs; other runs are left out."""
    known = archived.filter(pc.is_in(archived["run_id"], pa.array(list(jobs), pa.int64())))
    seconds = pc.floor(pc.divide(known["triggered_at"].cast(pa.int64()).cast(pa.float64()), 1e6)).cast(pa.int64())
    hours = pc.floor(pc.divide(seconds.cast(pa.float64()), HOUR)).cast(pa.int64())
    failed = pc.equal(known["status"], "FAILED")
    reason = pc.struct_field(pc.extract_regex(known["failure_message"], _REASON), "reason")
    columns = {
        "job_id": pa.array([jobs[run] for run in known["run_id"].to_pylist()], pa.int64()),
        "hour": pc.multiply(hours, HOUR),
        "at": seconds,
        "status": known["status"],
        "is_savepoint": known["is_savepoint"],
        "reason": pc.if_else(failed, pc.utf8_slice_codeunits(reason, 0, _LONGEST_REASON), None),
        **{figure: known[column] for figure, column in FIGURES.items()},
    }
    return pa.table([columns[name] for name in CHECKPOINTS.names], schema=CHECKPOINTS)


def rolled_up(tables: Iterable[pa.Table], day: date, jobs: Collection[int]) -> list[Rollup]:
    """Return the jobs' roll-ups of the day, and of its hours if these are kept. `tables` must have all checkpoints."""
    of = dict(Run.objects.filter(job__in=jobs).values_list("pk", "job_id"))
    checkpoints = pa.concat_tables(as_read_by_the_pipeline(table, of) for table in tables)
    with_hours = _with_hours(day, jobs)
    hours = [row for row in rolled(checkpoints, HOUR).to_pylist() if row["job_id"] in with_hours]
    return [Rollup(**row) for row in (*hours, *rolled(checkpoints, DAY).to_pylist())]


def store(rollups: Sequence[Rollup]) -> None:
    Rollup.objects.bulk_create(
        rollups, batch_size=1000, update_conflicts=True, unique_fields=list(_KEY), update_fields=_REST
    )


def _with_hours(day: date, jobs: Collection[int]) -> set[int]:
    """Return the jobs that still have hourly roll-ups of the day or of an earlier one."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    kept_from = RollupProgress.objects.values_list("hours_from", flat=True).first()
    if kept_from is not None and midnight < kept_from:
        return set()
    hours = Rollup.objects.filter(job__in=jobs, seconds=HOUR, start__lt=midnight + timedelta(seconds=DAY))
    return set(hours.values_list("job_id", flat=True).distinct())
