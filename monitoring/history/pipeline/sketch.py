"""Sketches of figures, from which any quantile over any time can be told: a count for each of a fixed set of ranges.

Ranges grow by a fixed factor, so that whatever value of a range is meant, the one told for it is at most RELATIVE_ERROR
off (the idea of DDSketch: Masson, Rim, Lee, VLDB 2019). Merging adds counts: in any order, any number of times, exactly
what one sketch over everything would be. A value below one is told as zero.

How they are stored is told in sketch_forms.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .sketch_forms import Cells, Damaged, read_pairs, read_rice, write_rice

VERSION = 2  # of ranges and form: what is stored says which
READ = {1: read_pairs, 2: read_rice}
RELATIVE_ERROR = 0.02
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
# Where ranges begin, up to the largest whole number of 64 bits. Range 0 lies before the first.
BOUNDS: NDArray[np.float64] = np.power(_GROWTH, np.arange(1093), dtype=np.float64)
_WIDTH = len(BOUNDS) + 1

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
    found, counts = np.unique(groups * _WIDTH + ranges, return_counts=True)
    return write_rice(Cells(found // _WIDTH, found % _WIDTH, counts), count)


def encode_sums(
    sketches: Sequence[bytes], versions: Sequence[int], groups: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int32], bytes]:
    """As `encode`, of sketches: `groups` has the number of each one's group. Raises UnknownSketch."""
    cells = _cells(sketches, versions)
    found, places = np.unique(groups[cells.places] * _WIDTH + cells.ranges, return_inverse=True)
    counts = np.zeros(len(found), np.int64)
    np.add.at(counts, places, cells.counts)
    return write_rice(Cells(found // _WIDTH, found % _WIDTH, counts), count)


def encode_counts(counts: Counts) -> bytes:
    ranges = np.flatnonzero(counts)
    return write_rice(Cells(np.zeros_like(ranges), ranges, counts[ranges]), 1)[1]


def merged(sketches: Iterable[bytes | memoryview], versions: Iterable[int] | None = None) -> Counts:
    """The sum of all; `versions`: of each, else all are of VERSION. Raises UnknownSketch."""
    several = [bytes(each) for each in sketches]
    cells = _cells(several, [VERSION] * len(several) if versions is None else list(versions))
    counts: Counts = np.zeros(_WIDTH, np.int64)
    np.add.at(counts, cells.ranges, cells.counts)
    return counts


def merged_each(groups: Sequence[Sequence[bytes | memoryview]], versions: Sequence[Sequence[int]]) -> list[Counts]:
    """As `merged` of each group, decoded in one go: of many small groups that is what takes long."""
    places = np.repeat(np.arange(len(groups)), [len(each) for each in groups])
    several, of = [bytes(each) for group in groups for each in group], [each for group in versions for each in group]
    cells = _cells(several, of)
    counts: Counts = np.zeros((len(groups), _WIDTH), np.int64)
    np.add.at(counts, (places[cells.places], cells.ranges), cells.counts)
    return list(counts)


def _cells(sketches: Sequence[bytes], versions: Sequence[int]) -> Cells:
    """Of all of them; `places` in no order where there are several versions."""
    if unknown := set(versions) - READ.keys():
        raise UnknownSketch(f"version {min(unknown)} is not known; {' and '.join(map(str, READ))} are")
    parts = []
    for version in sorted(set(versions)):
        which = [place for place, each in enumerate(versions) if each == version]
        try:
            part = READ[version]([sketches[place] for place in which])
        except Damaged as why:
            raise UnknownSketch(f"a sketch is none of version {version}: {why}") from why
        if len(part.ranges) and int(part.ranges.max()) >= _WIDTH:
            raise UnknownSketch(f"range {part.ranges.max()} is none of version {version}")
        parts.append(Cells(np.array(which, np.int64)[part.places], part.ranges, part.counts))
    nothing = np.zeros(0, np.int64)
    return (
        Cells(*(np.concatenate([nothing, *columns]) for columns in zip(*parts, strict=True)))
        if parts
        else Cells(nothing, nothing, nothing)
    )


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
