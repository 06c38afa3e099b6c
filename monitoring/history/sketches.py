"""Quantile sketches of roll-ups: KLL sketches of Apache DataSketches, in the form that Spark's functions use.

A sketch of at most 200 values returns exact quantiles. A larger one returns a value whose rank differs from the wanted
one by at most RANK_ERROR, with a confidence of 99 % (https://datasketches.apache.org/docs/KLL/KLLSketch.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from datasketches import kll_floats_sketch
from numpy.typing import NDArray

K = 200  # Spark's default
RANK_ERROR = kll_floats_sketch(K).normalized_rank_error(False)  # 0.0133


class UnknownSketch(ValueError):
    """Raised for a sketch of an unknown version, or for bytes that are not a sketch; the message says which."""


def encode(values: NDArray[np.int64]) -> bytes:
    """Return the sketch of the values, in any order. Without values it is empty."""
    if not len(values):
        return b""
    sketch = kll_floats_sketch(K)
    sketch.update(np.sort(values).astype(np.float32))
    return bytes(sketch.serialize())


def merged(sketches: Iterable[bytes | memoryview]) -> kll_floats_sketch:
    """Return the sketch of all values together. Raises UnknownSketch."""
    together = kll_floats_sketch(K)
    for each in sketches:
        if each:
            try:
                together.merge(kll_floats_sketch.deserialize(bytes(each)))
            except (RuntimeError, ValueError, IndexError, MemoryError) as why:
                raise UnknownSketch(f"{len(each)} bytes are not a sketch: {why}") from why
    return together


def quantiles(sketch: kll_floats_sketch, wanted: Sequence[float]) -> list[float | None]:
    """Return the quantiles as PostgreSQL's percentile_disc; None without values."""
    if sketch.is_empty():
        return [None for _ in wanted]
    return [float(value) for value in sketch.get_quantiles(list(wanted), True)]


def share_below(sketch: kll_floats_sketch, limit: float) -> float | None:
    """Return the share of the values below `limit`, which is at most RANK_ERROR off; None without values."""
    return None if sketch.is_empty() else float(sketch.get_rank(limit, False))
