"""The lineage of a query's output is stored with its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.checkpoint_location.layout import SINK, select_batch
from checkpointing.sinks.lineage import Segment
from checkpointing.spark.timelines import TIMELINES, begin_timeline


def test_lineage_grows_with_each_restore_only(tmp_path: Path) -> None:
    assert begin_timeline(tmp_path / "new", "A", None) == (Segment("A", -1),)
    assert begin_timeline(tmp_path / "new", "A", 4) == (Segment("A", -1),)
    assert begin_timeline(tmp_path / "new", "B", 4) == (Segment("A", -1), Segment("B", 4))
    assert begin_timeline(tmp_path / "new", "C", 2) == (Segment("A", -1), Segment("C", 2))


def test_a_state_from_before_there_were_lineages_begins_one(tmp_path: Path) -> None:
    assert begin_timeline(tmp_path, "A", 9) == (Segment("A", 9),)


def test_unreadable_lineage_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / TIMELINES).write_text("[[")
    with pytest.raises(ValueError, match="not a lineage of timelines"):
        begin_timeline(tmp_path, "A", 9)


def test_every_snapshot_includes_the_timelines() -> None:
    listing = dict.fromkeys(["metadata", "offsets/0", "commits/0", TIMELINES], 1)
    [found] = [file for file in select_batch(listing, 0, lambda path: b"") if file.path == TIMELINES]
    assert found.owner == SINK
