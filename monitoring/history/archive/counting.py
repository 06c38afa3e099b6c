"""Archived checkpoints as the pipeline reads checkpoints, for figures that pages compute."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import compute as pc

from monitoring.history.pipeline.columns import CHECKPOINTS, FIGURES, HOUR, LONGEST_REASON, REASON_PATTERN

_REASON = f"(?P<reason>{REASON_PATTERN})"


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
        "reason": pc.if_else(failed, pc.utf8_slice_codeunits(reason, 0, LONGEST_REASON), None),
        **{figure: known[column] for figure, column in FIGURES.items()},
    }
    return pa.table([columns[name] for name in CHECKPOINTS.names], schema=CHECKPOINTS)
