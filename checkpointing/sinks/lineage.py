"""The batches that make up the output of a job, across restores of older states. Pure.

A *timeline* is the part of a query's output between two restores. Batch numbers continue from the restored state, so
that two timelines can have batches with the same number and other rows. Or they continue from a greater number
(`numbered_after`, see decision 132), which changes nothing else. A *lineage* lists, oldest first, the timelines that
made a state, and after which batch each one began:

    A: 0 … 10       ((A, after -1),)
    B: 11 … 15      ((A, -1), (B, 10))            a snapshot of A at 10 was restored
    C: 6 … 8        ((A, -1), (C, 5))             then one of A at 5
    D: 11 …         ((A, -1), (D, 10))            then again that of A at 10

D's output must contain A's batches up to 10 and D's own. It excludes B's and C's rows, but includes A's 6 to 10, which
were not part of C's output. No replay writes those again, because D's state is after their input. So a sink moves rows
of an abandoned timeline away and never deletes them, and a restore moves rows in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

NUMBERED_AS_BEFORE = -1
OPEN = 2**62  # the end of the current timeline: no batch number is higher


@dataclass(frozen=True)
class Segment:
    """A part of a lineage: `timeline` began after batch `after` of the one before (-1: with the first batch).

    Its own batches have numbers above `numbered_after`, which is `after` unless numbers were moved forward.
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
    """The moves that make a sink contain the output of another lineage."""

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
    # Drop timelines without a batch in the state.
    while kept and kept[-1].numbered_after >= after:
        after = min(after, kept.pop().after)
    return (*kept, Segment(timeline, after, max(number, numbered_after)))


def moves(old: Lineage, new: Lineage) -> Moves:
    """Return the moves from the output of `old` to the output of `new`."""
    was, becomes = _reaches(old), _reaches(new)
    timelines = dict.fromkeys((*was, *becomes))
    return Moves(
        away=tuple(_spans(timelines, becomes, was)),
        back=tuple(_spans(timelines, was, becomes)),
    )


def _reaches(lineage: Lineage) -> dict[str, int]:
    """Return the last batch that counts, by timeline. The last timeline is open."""
    ends = {segment.timeline: following.after for segment, following in pairwise(lineage)}
    return {**ends, lineage[-1].timeline: OPEN} if lineage else {}


def _spans(timelines: Iterable[str], lower: Mapping[str, int], upper: Mapping[str, int]) -> Iterable[Span]:
    for timeline in timelines:
        after, to = lower.get(timeline, -1), upper.get(timeline, -1)
        if after < to:
            yield Span(timeline, after, to)


def abandoned(lineage: Lineage) -> tuple[tuple[int, int], ...]:
    """Return the numbers that timelines outside of the lineage used, as (first, last) pairs.

    Each timeline's batches count up to the start of the next one, whose numbers are all greater than those used before.
    """
    return tuple((each.after + 1, each.numbered_after) for each in lineage if each.numbered_after > each.after)


def to_json(lineage: Lineage) -> str:
    return json.dumps([[segment.timeline, segment.after, segment.numbered_after] for segment in lineage])


def from_json(text: str) -> Lineage:
    """Parse a lineage. Raise ValueError if the text is not one."""
    try:
        return tuple(Segment(str(timeline), int(after), int(number)) for timeline, after, number in json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text[:80]!r} is not a lineage of timelines") from error
