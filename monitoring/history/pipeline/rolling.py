"""Compute roll-ups from checkpoints: pure functions over Arrow tables.

Callers pass all checkpoints of an hour, so that a roll-up does not depend on its previous value. Computing it twice
gives the same result, and a correction needs no subtraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from .columns import COUNTS, DAY, FIGURES, HOUR, MINUTE, ROLLUPS, SKETCHES
from .sketch import VERSION, encode, encode_sums, ranges_of


def by_minute(changes: pa.Table, since: int) -> pa.Table:
    """Return roll-ups of the minutes from `since` on in which anything changed. The others stay unchanged."""
    recent = changes.filter(pc.fill_null(pc.greater_equal(changes["at"], since // MINUTE * MINUTE), False))
    minutes = recent.append_column("minute", pc.multiply(pc.divide(recent["at"], MINUTE), MINUTE))
    key = ["job_id", "minute"]
    touched = minutes.filter(minutes["changed"]).group_by(key, use_threads=False).aggregate([])
    some = minutes.join(touched, key, join_type="left semi", use_threads=False)
    return _rolled(some, some["minute"], MINUTE)


def by_hour(checkpoints: pa.Table) -> pa.Table:
    """Return roll-ups of all hours in the table, including hours that no longer have checkpoints."""
    return _rolled(checkpoints, checkpoints["hour"], HOUR)


def by_day(hours: pa.Table) -> pa.Table:
    """Return roll-ups of whole days. `hours` must contain every hour of these days that has checkpoints."""
    days = pc.multiply(pc.divide(_epoch(hours["start"]), DAY), DAY)
    keyed = hours.append_column("day", days).sort_by([("job_id", "ascending"), ("day", "ascending")])
    summed = keyed.group_by(["job_id", "day"], use_threads=False).aggregate(
        [
            *((name, "sum") for name in COUNTS),
            *((f"{figure}_sum", "sum") for figure in FIGURES),
            *((f"{figure}_min", "min") for figure in FIGURES),
            *((f"{figure}_max", "max") for figure in FIGURES),
            ("reasons", "list"),
        ]
    )
    group = _places(pa.table({"job_id": hours["job_id"], "start": days}), summed.rename_columns({"day": "start"}))
    versions = hours["version"].to_pylist()
    columns = {
        **{name: summed[f"{name}_sum"] for name in COUNTS},
        **{
            f"{figure}_{what}": summed[f"{figure}_{what}_{what}"]
            for figure in FIGURES
            for what in ("sum", "min", "max")
        },
        **{name: _binary(*encode_sums(hours[name].to_pylist(), versions, group, summed.num_rows)) for name in SKETCHES},
        "reasons": pa.array([_reasons_together(each) for each in summed["reasons_list"].to_pylist()]),
    }
    return _table(summed["job_id"], summed["day"], DAY, columns)


def _rolled(checkpoints: pa.Table, start: Any, seconds: int) -> pa.Table:
    keys = pa.table({"job_id": checkpoints["job_id"], "start": start})
    groups = keys.group_by(["job_id", "start"], use_threads=False).aggregate([])
    count = groups.num_rows
    group = _places(keys, groups)
    done = _equal(checkpoints["status"], "COMPLETED")
    failed = _equal(checkpoints["status"], "FAILED")
    savepoint = np.asarray(checkpoints["is_savepoint"].fill_null(False))
    counted = {
        "completed": done,
        "failed": failed,
        "pending": _equal(checkpoints["status"], "IN_PROGRESS"),
        "completed_savepoints": done & savepoint,
        "failed_savepoints": failed & savepoint,
    }
    columns: dict[str, Any] = {
        name: pa.array(np.bincount(group[which], minlength=count).astype(np.int64)) for name, which in counted.items()
    }
    for figure in FIGURES:
        columns |= _figure(figure, checkpoints[figure], done, group, count)
    columns["reasons"] = pa.array(_reasons(checkpoints["reason"], failed, group, count))
    return _table(groups["job_id"], groups["start"], seconds, columns)


def _figure(name: str, column: Any, done: Any, group: Any, count: int) -> Mapping[str, Any]:
    """Return the columns of one figure, from completed checkpoints that have it."""
    known = done & np.asarray(column.is_valid())
    values, groups = np.asarray(column.fill_null(0))[known], group[known]
    order = np.argsort(groups, kind="stable")
    values, groups = values[order], groups[order]
    present, first = np.unique(groups, return_index=True)
    absent = np.ones(count, bool)
    absent[present] = False

    def spread(reduced: Any) -> pa.Array:
        whole = np.zeros(count, np.int64)
        whole[present] = reduced
        return pa.array(whole, mask=absent)

    offsets, body = encode(groups, ranges_of(values), count)
    return {
        f"{name}_sum": spread(np.add.reduceat(values, first) if len(first) else []),
        f"{name}_min": spread(np.minimum.reduceat(values, first) if len(first) else []),
        f"{name}_max": spread(np.maximum.reduceat(values, first) if len(first) else []),
        f"{name}_sketch": _binary(offsets, body),
    }


def _binary(offsets: Any, body: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(body)]
    )


def _reasons(column: Any, failed: Any, group: Any, count: int) -> list[str]:
    """Return for each group the JSON of {reason: failures} with sorted keys, or "" without failures."""
    found: list[dict[str, int]] = [{} for _ in range(count)]
    texts = column.filter(pa.array(failed)).to_pylist()
    for place, text in zip(group[failed].tolist(), texts, strict=True):
        found[place][text or ""] = found[place].get(text or "", 0) + 1
    return [_json(each) for each in found]


def _reasons_together(several: list[str]) -> str:
    together: dict[str, int] = {}
    for each in several:
        for reason, failures in orjson.loads(each or "{}").items():
            together[reason] = together.get(reason, 0) + failures
    return _json(together)


def _json(reasons: Mapping[str, int]) -> str:
    return orjson.dumps(reasons, option=orjson.OPT_SORT_KEYS).decode() if reasons else ""


def _places(keys: pa.Table, groups: pa.Table) -> Any:
    """Return the group number of each row."""
    numbered = groups.select(["job_id", "start"]).append_column("place", pa.array(np.arange(groups.num_rows)))
    rows = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
    joined = rows.join(numbered, ["job_id", "start"], use_threads=False)
    places = np.empty(keys.num_rows, np.int64)
    places[np.asarray(joined["row"])] = np.asarray(joined["place"])
    return places


def _equal(column: Any, value: str) -> Any:
    return np.asarray(pc.equal(column, value).fill_null(False))


def _epoch(column: Any) -> Any:
    return pc.divide(column.cast(pa.int64()), 1_000_000)


def _table(job: Any, start: Any, seconds: int, columns: Mapping[str, Any]) -> pa.Table:
    count = len(job)
    moments = pc.multiply(start, 1_000_000).cast(pa.timestamp("us", "UTC"))
    keys = {
        "job_id": job,
        "seconds": pa.array(np.full(count, seconds, np.int32)),
        "start": moments,
        "version": pa.array(np.full(count, VERSION, np.int16)),
    }
    everything = {**keys, **columns}
    return pa.table([everything[field.name] for field in ROLLUPS], schema=ROLLUPS)
