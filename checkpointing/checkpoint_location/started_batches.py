"""The batch for which a foreachBatch function was last called. It is stored next to the query's logs before the call.

The checkpointLocation does not show what such a function did. If the batch's offsets were lost, a local recovery would
form the batch again with other rows. A sink that knows the batch would then skip those rows. State, and a file sink's
log, show their batches by themselves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAME = "begun"
_QUERY_ID = "sql.streaming.queryId"


class StartedBatches:
    """The batches that the queries at `locations` have started.

    The thread of a batch's function calls `note` and `note_error`.
    """

    def __init__(self, locations: Sequence[Path]) -> None:
        self._locations = locations
        self._threads: dict[Path, int] = {}
        self._errors: dict[Path, Exception] = {}

    def note(self, frame: Any, batch: int) -> None:
        location = self._location_of(frame)
        if location is not None:
            self._threads[location] = threading.get_native_id()
            partial = location / f".{_NAME}"
            partial.write_text(str(batch))
            partial.rename(location / _NAME)

    def note_error(self, error: Exception) -> None:
        """Store what the function raised after `note`."""
        thread = threading.get_native_id()
        self._errors.update({location: error for location, each in self._threads.items() if each == thread})

    def error(self, location: Path) -> Exception | None:
        """Return what the query's function raised, with its own class, because Spark passes on only its text."""
        return self._errors.get(location)

    def cpu_ticks(self, location: Path) -> int:
        """Return the processor time that the thread of the query's function has used; 0 if no function was called.

        A function may compute for a long time without starting a Spark task.
        """
        thread = self._threads.get(location)
        return 0 if thread is None else _cpu_ticks(thread)

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


def _cpu_ticks(thread: int) -> int:
    """Return the user and system time of a thread of this process; 0 when it has ended. See proc_pid_stat(5)."""
    try:
        figures = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(figures[11]) + int(figures[12])


def last_started_batch(location: Path) -> int:
    """Return the last batch that was started, or -1 if no function was called yet. Raise ValueError."""
    try:
        return int((location / _NAME).read_text())
    except FileNotFoundError:
        return -1
