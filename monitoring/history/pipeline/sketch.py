"""Sketches of figures: a count for each of a fixed set of ranges, from which any quantile can be computed.

Ranges grow by a fixed factor, so the value returned for a range differs by at most RELATIVE_ERROR from all values in
it. The idea is that of DDSketch (Masson, Rim, Lee, VLDB 2019). Merging adds counts: in any order, it gives exactly the
sketch of all values together. A value below one is returned as zero.

sketch_forms.py defines how sketches are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .sketch_forms import Cells, Damaged, read_pairs, read_rice, write_rice

VERSION = 2  # of the ranges and of the form; it is stored with each roll-up
READ = {1: read_pairs, 2: read_rice}
RELATIVE_ERROR = 0.02
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
# The starts of the ranges, up to the largest 64-bit integer. Range 0 is before the first of them.
BOUNDS: NDArray[np.float64] = np.power(_GROWTH, np.arange(1093), dtype=np.float64)
_WIDTH = len(BOUNDS) + 1

Counts = NDArray[np.int64]  # the number of values in each range


class UnknownSketch(ValueError):
    """Raised for a sketch of an unknown version, or for bytes that are no sketch; the message says which."""


def ranges_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the range of each value."""
    return np.searchsorted(BOUNDS, values.astype(np.float64), side="right")


def encode(groups: NDArray[np.int64], ranges: NDArray[np.int64], count: int) -> tuple[NDArray[np.int32], bytes]:
    """Return the sketches of `count` groups as consecutive bytes, with the offset of each start and of the end.

    `groups` has the group number of each value and `ranges` its range, in any order.
    """
    found, counts = np.unique(groups * _WIDTH + ranges, return_counts=True)
    return write_rice(Cells(found // _WIDTH, found % _WIDTH, counts), count)


def encode_sums(
    sketches: Sequence[bytes], versions: Sequence[int], groups: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int32], bytes]:
    """Return the same as `encode` from sketches: `groups` has the group number of each. Raises UnknownSketch."""
    cells = _cells(sketches, versions)
    found, places = np.unique(groups[cells.places] * _WIDTH + cells.ranges, return_inverse=True)
    counts = np.zeros(len(found), np.int64)
    np.add.at(counts, places, cells.counts)
    return write_rice(Cells(found // _WIDTH, found % _WIDTH, counts), count)


def encode_counts(counts: Counts) -> bytes:
    ranges = np.flatnonzero(counts)
    return write_rice(Cells(np.zeros_like(ranges), ranges, counts[ranges]), 1)[1]


def merged(sketches: Iterable[bytes | memoryview], versions: Iterable[int] | None = None) -> Counts:
    """Return the sum of all sketches. `versions` has the version of each; None: VERSION. Raises UnknownSketch."""
    several = [bytes(each) for each in sketches]
    cells = _cells(several, [VERSION] * len(several) if versions is None else list(versions))
    counts: Counts = np.zeros(_WIDTH, np.int64)
    np.add.at(counts, cells.ranges, cells.counts)
    return counts


def merged_each(groups: Sequence[Sequence[bytes | memoryview]], versions: Sequence[Sequence[int]]) -> list[Counts]:
    """Return `merged` for each group. All sketches are decoded at once, because decoding many small groups is slow."""
    places = np.repeat(np.arange(len(groups)), [len(each) for each in groups])
    several, of = [bytes(each) for group in groups for each in group], [each for group in versions for each in group]
    cells = _cells(several, of)
    counts: Counts = np.zeros((len(groups), _WIDTH), np.int64)
    np.add.at(counts, (places[cells.places], cells.ranges), cells.counts)
    return list(counts)


def _cells(sketches: Sequence[bytes], versions: Sequence[int]) -> Cells:
    """Return the cells of all sketches. With several versions, `places` are not sorted."""
    if unknown := set(versions) - READ.keys():
        raise UnknownSketch(
            f"sketches of version {min(unknown)} are not supported; supported are {' and '.join(map(str, READ))}"
        )
    parts = []
    for version in sorted(set(versions)):
        which = [place for place, each in enumerate(versions) if each == version]
        try:
            part = READ[version]([sketches[place] for place in which])
        except Damaged as why:
            raise UnknownSketch(f"a sketch is not valid for version {version}: {why}") from why
        if len(part.ranges) and int(part.ranges.max()) >= _WIDTH:
            raise UnknownSketch(f"range {part.ranges.max()} does not exist in sketches of version {version}")
        parts.append(Cells(np.array(which, np.int64)[part.places], part.ranges, part.counts))
    nothing = np.zeros(0, np.int64)
    return (
        Cells(*(np.concatenate([nothing, *columns]) for columns in zip(*parts, strict=True)))
        if parts
        else Cells(nothing, nothing, nothing)
    )


def quantiles(counts: Counts, wanted: Sequence[float]) -> list[float | None]:
    """Return the quantiles as PostgreSQL's percentile_disc, each at most RELATIVE_ERROR off; None without values."""
    total = int(counts.sum())
    if not total:
        return [None for _ in wanted]
    ends = np.cumsum(counts)
    # q × total may be above its true whole number by a rounding error, so a tiny number is subtracted.
    ranks = [min(total, max(1, int(np.ceil(q * total - 1e-9)))) for q in wanted]
    return [_told(int(np.searchsorted(ends, rank))) for rank in ranks]


def _told(place: int) -> float:
    """Return the value with the same relative error to both ends of the range."""
    return 0.0 if place == 0 else float(2 * BOUNDS[place - 1] * _GROWTH / (1 + _GROWTH))
