"""Convert the sketches of roll-ups from counts of ranges (versions 1 and 2) to KLL sketches (version 3).

A killed conversion is continued by the next `migrate`: each batch of rows is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from django.db import migrations, transaction
from numpy.typing import NDArray

from monitoring.history.sketches import encode

FIGURES = ("duration", "alignment", "start_delay", "state_size", "checkpointed_size", "processed")
AT_ONCE = 2000
# Range n is from GROWTH ** (n - 1) to GROWTH ** n; range 0 has the values below one.
GROWTH = 1.02 / 0.98

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]  # ranges, and the number of values in each

_COLUMNS = ", ".join(f"{figure}_min, {figure}_max, {figure}_sketch" for figure in FIGURES)
_NEXT = f"""
SELECT job_id, seconds, start, version, {_COLUMNS} FROM monitoring_rollup
WHERE (job_id, seconds, start) > (%s, %s, %s) AND version < 3 ORDER BY job_id, seconds, start LIMIT {AT_ONCE}
"""
_STORE = f"""
UPDATE monitoring_rollup SET version = 3, {", ".join(f"{figure}_sketch = %s" for figure in FIGURES)}
WHERE job_id = %s AND seconds = %s AND start = %s
"""


def read_pairs(sketch: bytes) -> Counts:
    pairs = np.frombuffer(sketch, "<u2").astype(np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def read_rice(sketch: bytes) -> Counts:
    """Read a header of 32 bits, the low k bits of each count, and the higher bits as zeros that end with a one."""
    header = int.from_bytes(sketch[:4], "little")
    first, k, length = header & 0x7FF, header >> 11 & 0x1F, header >> 16
    bits = np.unpackbits(np.frombuffer(sketch, np.uint8), bitorder="little")[32:].astype(np.int64)
    low = bits[: length * k].reshape(length, k) @ (1 << np.arange(k))
    ones = np.flatnonzero(bits[length * k :])[:length]
    return first + np.arange(length), (np.diff(ones, prepend=-1) - 1 << k) + low


READ: dict[int, Callable[[bytes], Counts]] = {1: read_pairs, 2: read_rice}


def converted(version: int, sketch: bytes, least: int | None, most: int | None) -> bytes:
    if not sketch:
        return b""
    ranges, counts = READ[version](sketch)
    middles = np.where(ranges == 0, 0.0, 2 * GROWTH ** ranges.astype(float) / (1 + GROWTH))
    return encode(np.repeat(np.clip(middles, least, most), counts))


def convert(apps: Any, schema_editor: Any) -> None:
    last = (-1, 0, "-infinity")
    while True:
        with transaction.atomic(), schema_editor.connection.cursor() as cursor:
            cursor.execute(_NEXT, last)
            rows = cursor.fetchall()
            if not rows:
                return
            cursor.executemany(_STORE, [_stored(row) for row in rows])
            last = rows[-1][:3]


def _stored(row: tuple[Any, ...]) -> list[Any]:
    job, seconds, start, version, *values = row
    figures = zip(values[::3], values[1::3], values[2::3], strict=True)
    return [*(converted(version, bytes(sketch), least, most) for least, most, sketch in figures), job, seconds, start]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("monitoring", "0003_further_reasons")]

    operations = [migrations.RunPython(convert)]
