"""Compute roll-ups from checkpoints without Spark: for pages, where roll-ups are missing, and for archived days."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from monitoring.history.pipeline.columns import COUNTS, FIGURES, ROLLUPS, VERSION
from monitoring.history.sketches import encode


def rolled(checkpoints: pa.Table, seconds: int) -> pa.Table:
    """Return one row per job and range of `seconds`, in the schema ROLLUPS. `checkpoints` has the schema CHECKPOINTS.

    The figures are those of `pipeline.rollups.rolled`.
    """
    done, failed = (pc.equal(checkpoints["status"], status) for status in ("COMPLETED", "FAILED"))
    counts = {
        "completed": done,
        "failed": failed,
        "pending": pc.equal(checkpoints["status"], "IN_PROGRESS"),
        "completed_savepoints": pc.and_(done, checkpoints["is_savepoint"]),
        "failed_savepoints": pc.and_(failed, checkpoints["is_savepoint"]),
    }
    at = pc.coalesce(checkpoints["at"], checkpoints["hour"])
    columns = {
        "job_id": checkpoints["job_id"],
        "start": pc.multiply(pc.divide(at, seconds), seconds * 1_000_000).cast(pa.timestamp("us", "UTC")),
        **{name: which.fill_null(False).cast(pa.int64()) for name, which in counts.items()},
        **{figure: pc.if_else(done, checkpoints[figure], None) for figure in FIGURES},
        "reasons": pc.if_else(failed, checkpoints["reason"].fill_null(""), None),
    }
    grouped = pa.table(columns).group_by(["job_id", "start"], use_threads=False).aggregate(
        [
            *((name, "sum") for name in COUNTS),
            *((figure, what) for figure in FIGURES for what in ("sum", "min", "max", "list")),
            ("reasons", "list"),
        ]
    )  # fmt: skip
    constant = {"seconds": pa.scalar(seconds, pa.int32()), "version": pa.scalar(VERSION, pa.int16())}
    made: dict[str, Any] = {
        "job_id": grouped["job_id"],
        "start": grouped["start"],
        **{name: pa.repeat(value, grouped.num_rows) for name, value in constant.items()},
        **{name: grouped[f"{name}_sum"] for name in COUNTS},
        **{f"{figure}_{what}": grouped[f"{figure}_{what}"] for figure in FIGURES for what in ("sum", "min", "max")},
        **{f"{figure}_sketch": [_sketch(each) for each in grouped[f"{figure}_list"]] for figure in FIGURES},
        "reasons": [_reasons(each.as_py()) for each in grouped["reasons_list"]],
    }
    return pa.table([made[name] for name in ROLLUPS.names], schema=ROLLUPS)


def _sketch(values: pa.ListScalar) -> bytes:
    return encode(values.values.drop_null().to_numpy())


def _reasons(texts: list[str | None]) -> str:
    """Return JSON of {reason: failures} with sorted keys, or "" without failures."""
    counted = Counter(text for text in texts if text is not None)
    return orjson.dumps(counted, option=orjson.OPT_SORT_KEYS).decode() if counted else ""
