"""What the pipeline reads of a checkpoint and writes into a roll-up."""

from __future__ import annotations

import pyarrow as pa

MINUTE, HOUR, DAY = 60, 3600, 86_400
MINUTES_KEPT_S = 3 * HOUR  # roll-ups of minutes are there for so long
FORGOTTEN_WITHIN_S = 900  # and are made until whoever forgets them has certainly come by
PROGRAM = 2  # from 2 on it makes a day of which the hours are gone from its checkpoints

# Name in a roll-up -> column of a checkpoint. Durations in milliseconds, sizes in bytes; of completed ones.
FIGURES = {
    "duration": "end_to_end_duration",
    "alignment": "alignment_max",
    "start_delay": "start_delay_max",
    "state_size": "state_size",
    "checkpointed_size": "checkpointed_size",
    "processed": "processed_data",
}
COUNTS = ("completed", "failed", "pending", "completed_savepoints", "failed_savepoints")
_NUMBERS = tuple(f"{figure}_{what}" for figure in FIGURES for what in ("sum", "min", "max"))
SKETCHES = tuple(f"{figure}_sketch" for figure in FIGURES)

# A checkpoint; with status null one that was deleted, and without `at`, too, only an hour that has to be made anew.
# Times are seconds since 1970.
CHECKPOINTS = pa.schema(
    [
        ("job_id", pa.int64()),
        ("hour", pa.int64()),
        ("at", pa.int64()),
        ("status", pa.string()),
        ("is_savepoint", pa.bool_()),
        ("reason", pa.string()),
        *((figure, pa.int64()) for figure in FIGURES),
    ]
)
CHANGES = CHECKPOINTS.append(pa.field("changed", pa.bool_()))  # whether since the roll-ups were last made
ROLLUPS = pa.schema(
    [
        ("job_id", pa.int64()),
        ("seconds", pa.int32()),
        ("start", pa.timestamp("us", "UTC")),
        ("version", pa.int16()),
        *((name, pa.int64()) for name in COUNTS),
        *((name, pa.int64()) for name in _NUMBERS),
        *((name, pa.binary()) for name in SKETCHES),
        ("reasons", pa.string()),
    ]
)
_SQL = {
    pa.int16(): "short", pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.bool_(): "boolean",
    pa.binary(): "binary", pa.timestamp("us", "UTC"): "timestamp",
}  # fmt: skip


def spark_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SQL[field.type]}" for field in schema)


# How a failure is counted: its message up to where particulars begin. SQL, over a column failure_message.
REASON = r"left(substring(failure_message from '^[^.:\n]*'), 120)"

# Whether the roll-ups of a day are final: its checkpoints are in the archive, and only some of them here. SQL, over a
# column with a cluster's key and one with a time.
ARCHIVED = (
    "EXISTS (SELECT FROM monitoring_archivedfile a WHERE a.kind = 'checkpoints' AND a.cluster_id = {cluster}"
    " AND a.day = ({at} AT TIME ZONE 'UTC')::date AND a.state IN ('live', 'expired', 'removed'))"
)
