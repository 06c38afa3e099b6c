"""The columns that the pipeline reads from checkpoints and writes to roll-ups."""

from __future__ import annotations

import pyarrow as pa

MINUTE, HOUR, DAY = 60, 3600, 86_400
MINUTES_KEPT_S = 3 * HOUR  # how long roll-ups of minutes are kept
FORGOTTEN_WITHIN_S = 900  # deletion may lag: roll-ups of minutes are computed for this much longer than they are kept
# The version of the program. A job that was started with another version reads all checkpoints again.
PROGRAM = 5
# The version of the sketches: KLL sketches of float values by Apache DataSketches, with its default k of 200.
VERSION = 3

# Name in a roll-up -> column of a checkpoint. Durations in milliseconds, sizes in bytes; only completed checkpoints.
FIGURES = {
    "duration": "end_to_end_duration",
    "alignment": "alignment_max",
    "start_delay": "start_delay_max",
    "state_size": "state_size",
    "checkpointed_size": "checkpointed_size",
    "processed": "processed_data",
}
# The figures of an operator that have roll-ups, as above.
OPERATOR_FIGURES = ("duration", "state_size", "checkpointed_size")
# The one of these with a quantile sketch.
OPERATOR_QUANTILES = "duration"
COUNTS = ("completed", "failed", "pending", "completed_savepoints", "failed_savepoints")
_NUMBERS = tuple(f"{figure}_{what}" for figure in FIGURES for what in ("sum", "min", "max"))
SKETCHES = tuple(f"{figure}_sketch" for figure in FIGURES)

# One row per checkpoint. A row without a status is a deleted checkpoint. A row that has no `at` either only names an
# hour that must be computed. Times are seconds since 1970. `changed`: since the roll-ups were last computed.
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
# `operator`: null, or the operator's vertex ID if the row has the figures of one operator of a completed checkpoint. A
# row without a status then names an operator whose roll-up is already stored.
CHANGES = CHECKPOINTS.append(pa.field("changed", pa.bool_())).append(pa.field("operator", pa.string()))
# One row per job and minute, hour or day. A figure that no checkpoint has: None as sum, minimum and maximum, and an
# empty sketch. `reasons` is JSON of {reason: failures}, or "".
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
# One row per job, operator and minute, hour or day. `completed`: the completed checkpoints with the operator's figures.
OPERATOR_ROLLUPS = pa.schema(
    [
        ("job_id", pa.int64()),
        ("seconds", pa.int32()),
        ("start", pa.timestamp("us", "UTC")),
        ("operator", pa.string()),
        ("version", pa.int16()),
        ("completed", pa.int64()),
        *((f"{figure}_{what}", pa.int64()) for figure in OPERATOR_FIGURES for what in ("sum", "min", "max")),
        (f"{OPERATOR_QUANTILES}_sketch", pa.binary()),
    ]
)
_SQL = {pa.int64(): "long", pa.int32(): "int", pa.string(): "string", pa.bool_(): "boolean"}


def spark_schema(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_type(field.type)}" for field in schema)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    return "timestamp" if pa.types.is_timestamp(kind) else _SQL[kind]


# SQL expression: the start of a failure message, without details, by which failures are counted.
REASON_PATTERN, LONGEST_REASON = r"^[^.:\n]*", 120
REASON = f"left(substring(failure_message from '{REASON_PATTERN}'), {LONGEST_REASON})"

# SQL condition on a cluster's key and the start of an hour: the roll-ups of that day (UTC) are final, because its
# checkpoints are archived and PostgreSQL has only some of them.
ARCHIVED = (
    "EXISTS (SELECT FROM monitoring_archivedfile a WHERE a.kind = 'checkpoints' AND a.cluster_id = {cluster}"
    " AND a.since < date_trunc('day', {at}, 'UTC') + interval '24 hours' AND a.until > date_trunc('day', {at}, 'UTC')"
    " AND a.state IN ('live', 'expired', 'removed'))"
)
