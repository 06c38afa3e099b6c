"""Which batch a foreachBatch function was last called for, written down beside the query's logs before it is called.

What such a function did nobody sees in the checkpointLocation. If the batch's offsets were lost, a local recovery would
cut it anew, and a sink that knows the batch would pass over other rows. State, and a file sink's log, tell of it by
themselves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAME = "begun"
_QUERY_ID = "sql.streaming.queryId"


class BegunBatches:
    """For the queries at `locations`. `note` is called on the thread of a batch's function."""

    def __init__(self, locations: Sequence[Path]) -> None:
        self._locations = locations

    def note(self, frame: Any, batch: int) -> None:
        location = self._location_of(frame)
        if location is not None:
            partial = location / f".{_NAME}"
            partial.write_text(str(batch))
            partial.rename(location / _NAME)

    def _location_of(self, frame: Any) -> Path | None:
        if len(self._locations) == 1:
            return self._locations[0]
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        return next((each for each in self._locations if _id_at(each) == query), None)


def _id_at(location: Path) -> str | None:
    try:
        return str(json.loads((location / "metadata").read_text())["id"])
    except FileNotFoundError:
        return None


def begun_batch(location: Path) -> int:
    """-1 when no function was called yet. ValueError."""
    try:
        return int((location / _NAME).read_text())
    except FileNotFoundError:
        return -1
