"""Which batches a job's output consists of, compared with a model of every row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointing.sinks.lineage import OPEN, Lineage, Segment, Span, begin, from_json, moves, to_json
from tests.profile import examples

A = (Segment("A", -1),)


def test_the_first_attempt_begins_with_the_first_batch() -> None:
    assert begin((), "A", None) == A


def test_an_attempt_that_continues_its_timeline_has_the_same_lineage() -> None:
    assert begin((*A, Segment("B", 7)), "B", None) == (*A, Segment("B", 7))


def test_a_timeline_in_which_nothing_was_written_before_the_snapshot_is_left_out() -> None:
    assert begin((*A, Segment("B", 7)), "C", 7) == (*A, Segment("C", 7))


def test_restoring_moves_the_later_batches_away() -> None:
    found = moves(A, begin(A, "B", 3))
    assert found.away == (Span("A", 3, OPEN),)
    assert [span for span in found.back if span.timeline == "A"] == []


def test_the_same_lineage_moves_nothing() -> None:
    assert moves(A, A) == moves((), ())


def test_lineage_survives_serialization() -> None:
    lineage = (*A, Segment("B", 7))
    assert from_json(to_json(lineage)) == lineage


@pytest.mark.parametrize("text", ["", "{}x", "[[1]]", '[["A", -1]]', '[["A", "x", 0]]', "7"])
def test_invalid_lineage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a lineage"):
        from_json(text)


def test_a_timeline_may_begin_with_a_greater_number() -> None:
    """Batches 4 to 9 of A are abandoned, independent of the number after which B begins."""
    b = begin(A, "B", 3, numbered_after=1000)
    assert b == (*A, Segment("B", 3, 1000))
    assert moves(A, b).away == (Span("A", 3, OPEN),)
    assert begin(b, "C", 1004, numbered_after=2000) == (*b, Segment("C", 1004, 2000))


def test_a_restored_state_that_nothing_was_added_to_ends_where_its_parent_did() -> None:
    b = begin(A, "B", 3, numbered_after=1000)
    assert begin(b, "C", 1000, numbered_after=2000) == (*A, Segment("C", 3, 2000))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 4), st.sampled_from((None, 0, 7))), min_size=1, max_size=12
    )
)
def test_after_any_restores_the_sink_has_exactly_the_rows_of_the_state(
    steps: list[tuple[int, int, int | None]],
) -> None:
    """Each step restores any snapshot ever taken and writes some batches; every batch may be restored later.

    The batch numbers continue after the snapshot's (None), or so far beyond the greatest number that was ever assigned.
    """
    snapshots: list[tuple[Lineage, int, frozenset[tuple[str, int]]]] = [((), -1, frozenset())]
    live: set[tuple[str, int]] = set()
    aside: set[tuple[str, int]] = set()
    held: Lineage = ()
    greatest = -1
    for number, (choice, batches, beyond) in enumerate(steps):
        lineage, batch, made_by = snapshots[choice % len(snapshots)]
        timeline = f"T{number}"
        first = batch if beyond is None or batch < 0 else greatest + beyond
        greatest = max(greatest, first)
        new = begin(lineage, timeline, batch if batch >= 0 else None, numbered_after=first)
        if batch >= 0:
            snapshots.append((new, first, made_by))
        if batches:  # an attempt that writes nothing does not touch the sink
            away = {row for row in live if _in(row, moves(held, new).away)}
            back = {row for row in aside if _in(row, moves(held, new).back)}
            live, aside, held = (live - away) | back, (aside - back) | away, new
            assert live == made_by
        for written in range(first + 1, first + 1 + batches):
            live.add((timeline, written))
            made_by |= {(timeline, written)}
            snapshots.append((new, written, made_by))
            greatest = max(greatest, written)
        if batches:
            assert live == made_by


def _in(row: tuple[str, int], spans: tuple[Span, ...]) -> bool:
    return any(span.timeline == row[0] and span.after < row[1] <= span.to for span in spans)
