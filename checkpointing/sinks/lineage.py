"""Which batches the output of a job consists of, across the restores of older states. Pure.

A *timeline* is a life of a query's output: it begins when a state is restored and ends when another one is. Batch
numbers go on from the restored state, so that two timelines have batches of the same number with other rows; or they
go on from a greater one (`numbered_after`, see decision 132), which changes nothing of the rest. A
*lineage* names, oldest first, the timelines that a state was made by, and after which batch each one began:

    A: 0 … 10       ((A, after -1),)
    B: 11 … 15      ((A, -1), (B, 10))            a snapshot of A at 10 was restored
    C: 6 … 8        ((A, -1), (C, 5))             then one of A at 5
    D: 11 …         ((A, -1), (D, 10))            then again that of A at 10

What D's output must hold is what A wrote up to 10 and what D writes: not B's and C's rows, but A's 6 to 10, which were
not part of C's output. No replay brings those back, as D's state has their input behind it. So rows of an abandoned
timeline are put aside and never thrown away by a sink, and a restore is a move in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

NUMBERED_AS_BEFORE = -1
OPEN = 2**62  # the timeline that is being written: no batch is beyond it


@dataclass(frozen=True)
class Segment:
    """`timeline` began after batch `after` of the one before (-1: with the first batch).

    Its own batches have the numbers above `numbered_after`, which is `after` unless numbers were moved forward.
    """

    timeline: str
    after: int
    numbered_after: int = NUMBERED_AS_BEFORE

    def __post_init__(self) -> None:
        if self.numbered_after < self.after:
            object.__setattr__(self, "numbered_after", self.after)


Lineage = tuple[Segment, ...]


@dataclass(frozen=True)
class Span:
    """The batches of one timeline from `after`, exclusive, to `to`, inclusive."""

    timeline: str
    after: int
    to: int


@dataclass(frozen=True)
class Moves:
    """What a sink has to do so that it holds another lineage's output."""

    away: tuple[Span, ...]
    back: tuple[Span, ...]


def begin(
    lineage: Lineage, timeline: str, restored_batch: int | None, *, numbered_after: int = NUMBERED_AS_BEFORE
) -> Lineage:
    """Return the lineage of an attempt that writes `timeline` after `restored_batch`; None: it starts without state.

    An attempt that continues the timeline it finds (local recovery) keeps that lineage. `numbered_after` is
    the number that the restored batch has now.
    """
    if lineage and lineage[-1].timeline == timeline:
        return lineage
    number = after = -1 if restored_batch is None else restored_batch
    kept = list(lineage)
    while kept and kept[-1].numbered_after >= after:  # nothing of it is in the state: its first number is its parent's
        after = min(after, kept.pop().after)
    return (*kept, Segment(timeline, after, max(number, numbered_after)))


def moves(old: Lineage, new: Lineage) -> Moves:
    """From a sink that holds the output of `old` to one that holds that of `new`."""
    was, becomes = _reaches(old), _reaches(new)
    timelines = dict.fromkeys((*was, *becomes))
    return Moves(
        away=tuple(_spans(timelines, becomes, was)),
        back=tuple(_spans(timelines, was, becomes)),
    )


def _reaches(lineage: Lineage) -> dict[str, int]:
    """The last batch that counts, by timeline. The last one is open."""
    ends = {segment.timeline: following.after for segment, following in pairwise(lineage)}
    return {**ends, lineage[-1].timeline: OPEN} if lineage else {}


def _spans(timelines: Iterable[str], lower: Mapping[str, int], upper: Mapping[str, int]) -> Iterable[Span]:
    for timeline in timelines:
        after, to = lower.get(timeline, -1), upper.get(timeline, -1)
        if after < to:
            yield Span(timeline, after, to)


def abandoned(lineage: Lineage) -> tuple[tuple[int, int], ...]:
    """Return the numbers that timelines outside of the lineage used, as (first, last) pairs.

    Each timeline's batches count up to where the next one began, and the next one's numbers are all greater than those
    used before.
    """
    return tuple((each.after + 1, each.numbered_after) for each in lineage if each.numbered_after > each.after)


def to_json(lineage: Lineage) -> str:
    return json.dumps([[segment.timeline, segment.after, segment.numbered_after] for segment in lineage])


def from_json(text: str) -> Lineage:
    """ValueError when the text is none."""
    try:
        return tuple(Segment(str(timeline), int(after), int(number)) for timeline, after, number in json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text[:80]!r} is no lineage of timelines") from error
