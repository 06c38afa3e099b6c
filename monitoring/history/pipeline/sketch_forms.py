"""Encode and decode sketches, a whole column at once. A form never changes; a new one is added instead.

Cells are three arrays: the sketch's number, the range and the number of values in it, sorted by sketch and range.

Form 1: pairs of 16-bit numbers, range and count; a larger count takes several pairs. It is read, but no longer written.

Form 2: a header of 32 bits with the first range (11), k (5) and the number n of ranges up to the last one (16). Then
the low k bits of the n counts, then the higher bits of each count as that many zeros and a one; zeros up to the next
byte. With k from the mean count, a range takes at most half a bit more than the optimum (Rice 1979, Elias 1974, Fano
1971).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_PAIR = np.dtype([("range", "<u2"), ("count", "<u2")])
_HEADER = 32


class Damaged(ValueError):
    """Raised for bytes that are no sketch of the form; the message says why."""


class Cells(NamedTuple):
    places: Numbers
    ranges: Numbers
    counts: Numbers


def read_pairs(sketches: Sequence[bytes]) -> Cells:
    sizes = np.array([len(each) for each in sketches], np.int64)
    if np.any(sizes % _PAIR.itemsize):
        raise Damaged(f"{sizes[sizes % _PAIR.itemsize > 0][0]} bytes are not a whole number of pairs")
    pairs = np.frombuffer(b"".join(sketches), _PAIR)
    places = np.repeat(np.arange(len(sketches)), sizes // _PAIR.itemsize)
    return Cells(places, pairs["range"].astype(np.int64), pairs["count"].astype(np.int64))


def write_rice(cells: Cells, count: int) -> tuple[NDArray[np.int32], bytes]:
    """Return `count` sketches as consecutive bytes, with the offset of each start and of the end.

    A sketch without cells has no bytes.
    """
    begins = np.flatnonzero(np.diff(cells.places, prepend=-1))
    place, first = cells.places[begins], cells.ranges[begins]
    length = cells.ranges[np.append(begins[1:], len(cells.ranges))[: len(begins)] - 1] - first + 1
    total = np.add.reduceat(cells.counts, begins) if len(begins) else cells.counts[:0]
    k = np.log2(np.maximum(total // np.maximum(length, 1), 1)).astype(np.int64)
    counts = _every_count(cells, begins, first, length)
    of = np.repeat(np.arange(len(begins)), length)
    above = counts >> k[of]
    bits = _HEADER + length * (k + 1) + _sums(above, length)
    sizes = np.zeros(count, np.int64)
    sizes[place] = (bits + 7) // 8
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    stream = np.zeros(int(offsets[-1]) * 8, np.uint8)
    start = offsets[place] * 8 + _HEADER
    for bit, among, at in _low_bits(start, length, k):
        stream[at] = counts[among] >> bit & 1
    ones = np.cumsum(above + 1) - 1
    before = np.concatenate(([0], np.cumsum(_sums(above + 1, length))))[:-1]
    stream[ones + (start + length * k - before)[of]] = 1
    body = np.packbits(stream, bitorder="little")
    header = first | k << 11 | length << 16
    for byte in range(_HEADER // 8):
        body[offsets[place] + byte] = header >> 8 * byte & 0xFF
    return offsets.astype(np.int32), body.tobytes()


def read_rice(sketches: Sequence[bytes]) -> Cells:
    place = np.array([n for n, each in enumerate(sketches) if each], np.int64)
    sizes = np.array([len(sketches[n]) for n in place], np.int64)
    if np.any(sizes * 8 <= _HEADER):
        raise Damaged(f"{sizes.min()} bytes are too few for a sketch")
    body = np.frombuffer(b"".join(sketches), np.uint8)
    begin = np.cumsum(sizes) - sizes
    header = sum((body[begin + n].astype(np.int64) << 8 * n for n in range(4)), np.zeros(len(place), np.int64))
    first, k, length = header & 0x7FF, header >> 11 & 0x1F, header >> 16
    start, end = begin * 8 + _HEADER, (begin + sizes) * 8
    if np.any(start + length * (k + 1) > end) or np.any(length == 0):
        raise Damaged("it has fewer counts than its header states")
    bits = np.unpackbits(body, bitorder="little")
    ones = np.flatnonzero(bits)
    of = np.searchsorted(begin * 8, ones, side="right") - 1
    is_end = ones >= (start + length * k)[of]
    ones, of = ones[is_end], of[is_end]
    if np.any(np.bincount(of, minlength=len(place)) != length):
        raise Damaged("the number of its counts differs from its header")
    previous = np.concatenate(([-1], ones[:-1]))
    opens = np.cumsum(length) - length
    previous[opens] = start + length * k - 1
    counts = (ones - previous - 1) << k[of]
    for bit, among, at in _low_bits(start, length, k):
        counts[among] |= bits[at].astype(np.int64) << bit
    if np.any(counts[opens] == 0) or np.any(counts[opens + length - 1] == 0):
        raise Damaged("the count of its first or last range is 0")
    ranges = first[of] + np.arange(len(of)) - opens[of]
    there = counts > 0
    return Cells(place[of][there], ranges[there], counts[there])


def _low_bits(start: Numbers, length: Numbers, k: Numbers) -> list[tuple[int, Numbers, Numbers]]:
    """Return, for each low bit that any sketch has, the counts that have it and the bit's position."""
    of = np.repeat(np.arange(len(length)), length)
    number = np.arange(len(of)) - np.repeat(np.cumsum(length) - length, length)
    at = start[of] + number * k[of]
    found = ((bit, np.flatnonzero(k[of] > bit)) for bit in range(int(k.max(initial=0))))
    return [(bit, among, at[among] + bit) for bit, among in found]


def _every_count(cells: Cells, begins: Numbers, first: Numbers, length: Numbers) -> Numbers:
    """Return the counts of all ranges from the first to the last of each sketch, including empty ones."""
    counts = np.zeros(int(length.sum()), np.int64)
    of = np.searchsorted(begins, np.arange(len(cells.ranges)), side="right") - 1
    counts[(np.cumsum(length) - length - first)[of] + cells.ranges] = cells.counts
    return counts


def _sums(values: Numbers, length: Numbers) -> Numbers:
    """Return the sums of consecutive groups of values; `length` has the size of each group."""
    ends = np.concatenate(([0], np.cumsum(values)))
    last = np.cumsum(length)
    return np.asarray(ends[last] - ends[last - length], np.int64)
