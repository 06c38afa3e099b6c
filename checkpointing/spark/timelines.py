"""The lineage of a query's output, stored with its state: a file in the checkpointLocation, part of each snapshot.

Spark reads only the names that it knows there. So a restored state contains the batches and timelines that made it,
even if it is restored under another job ID.
"""

from __future__ import annotations

from pathlib import Path

from checkpointing.sinks.lineage import NUMBERED_AS_BEFORE, Lineage, begin, from_json, to_json

TIMELINES = "timelines"


def begin_timeline(
    location: Path, timeline: str, restored_batch: int | None, *, numbered_after: int = NUMBERED_AS_BEFORE
) -> Lineage:
    """Record the lineage of the attempt that will write `timeline` at `location`, and return it.

    Raise OSError, ValueError.

    `begin` explains `numbered_after`.
    """
    path = location / TIMELINES
    lineage = begin(_read(path), timeline, restored_batch, numbered_after=numbered_after)
    location.mkdir(parents=True, exist_ok=True)
    fresh = location / f".{TIMELINES}.tmp"
    fresh.write_text(to_json(lineage))
    fresh.rename(path)
    return lineage


def _read(path: Path) -> Lineage:
    try:
        return from_json(path.read_text())
    except FileNotFoundError:  # the query started without restored state
        return ()
