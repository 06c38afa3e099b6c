"""Sketches of figures, from which any quantile over any time can be told: a count for each of a fixed set of ranges.

Ranges grow by a fixed factor, so that whatever value of a range is meant, the one told for it is at most RELATIVE_ERROR
off (the idea of DDSketch: Masson, Rim, Lee, VLDB 2019). Merging adds counts: in any order, any number of times, exactly
what one sketch over everything would be. A value below one is told as zero.

Stored as pairs of 16-bit numbers, range and count, ascending by range; a count that is too large takes several pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

VERSION = 1  # of ranges and form: what is stored says which
RELATIVE_ERROR = 0.02
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
# Where ranges begin, up to the largest whole number of 64 bits. Range 0 lies before the first.
BOUNDS: NDArray[np.float64] = np.power(_GROWTH, np.arange(1093), dtype=np.float64)
_MOST = 0xFFFF
_PAIR = np.dtype([("range", "<u2"), ("count", "<u2")])

Counts = NDArray[np.int64]  # by range


class UnknownSketch(ValueError):
    """A sketch of another version, or bytes that are none; the text says which."""


def ranges_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The range that each value lies in."""
    return np.searchsorted(BOUNDS, values.astype(np.float64), side="right")


def encode(groups: NDArray[np.int64], ranges: NDArray[np.int64], count: int) -> tuple[NDArray[np.int32], bytes]:
    """Sketches of `count` groups, one behind the other, with the offsets of their beginnings and of the end.

    `groups`: the number of each value's group, `ranges`: its range; in any order.
    """
    width = len(BOUNDS) + 1
    cells, counts = np.unique(groups * width + ranges, return_counts=True)
    return _written(cells // width, cells % width, counts, count)


def encode_counts(counts: Counts) -> bytes:
    ranges = np.flatnonzero(counts)
    return _written(np.zeros_like(ranges), ranges, counts[ranges], 1)[1]


def _written(
    groups: NDArray[np.int64], ranges: NDArray[np.int64], counts: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int32], bytes]:
    pieces = (counts + _MOST - 1) // _MOST
    pairs = np.empty(int(pieces.sum()), _PAIR)
    pairs["range"] = np.repeat(ranges, pieces)
    pairs["count"] = _MOST
    last = np.cumsum(pieces) - 1
    pairs["count"][last] = counts - (pieces - 1) * _MOST
    each = np.bincount(groups, weights=pieces, minlength=count).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(each))) * _PAIR.itemsize
    return offsets.astype(np.int32), pairs.tobytes()


def merged(sketches: Iterable[bytes | memoryview]) -> Counts:
    """The sum of all. Raises UnknownSketch."""
    joined = b"".join(bytes(each) for each in sketches)
    if len(joined) % _PAIR.itemsize:
        raise UnknownSketch(f"{len(joined)} bytes are no sketches of version {VERSION}")
    pairs = np.frombuffer(joined, _PAIR)
    if len(pairs) and int(pairs["range"].max()) > len(BOUNDS):
        raise UnknownSketch(f"range {pairs['range'].max()} is none of version {VERSION}")
    return np.bincount(pairs["range"], weights=pairs["count"], minlength=len(BOUNDS) + 1).astype(np.int64)


def quantiles(counts: Counts, wanted: Sequence[float]) -> list[float | None]:
    """As PostgreSQL's percentile_disc would tell them, each at most RELATIVE_ERROR off; None of nothing."""
    total = int(counts.sum())
    if not total:
        return [None for _ in wanted]
    ends = np.cumsum(counts)
    # Half a value: q × total may lie a rounding error above the whole number that it is.
    ranks = [min(total, max(1, int(np.ceil(q * total - 1e-9)))) for q in wanted]
    return [_told(int(np.searchsorted(ends, rank))) for rank in ranks]


def _told(place: int) -> float:
    """The value that is equally wrong, relatively, at both ends of the range."""
    return 0.0 if place == 0 else float(2 * BOUNDS[place - 1] * _GROWTH / (1 + _GROWTH))
