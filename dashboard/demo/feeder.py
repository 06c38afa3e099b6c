"""Replay the flights as a stream of files in a directory, as an upstream system would deliver them.

File `flights-<id of its first row>-<rows>.json` has one JSON object per line. Ids count from 0 without gaps. After
December, the same year is replayed with dates one year later. The names are the position: after a restart, the feeder
continues after the newest file. A file is written under another name and renamed, so readers see only complete files.

A streaming query lists its whole input directory at every trigger, so the number of files is limited: the feeder writes
one every BRISK_S seconds for the first hours, then one every CALM_S, and deletes files older than KEPT_S. A job that is
restored from an older snapshot has lost input, as with any upstream system that retains two days.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

from checkpointing.clock import Clock
from dashboard.demo.input import read_flights

ROWS = 100
BRISK_S = 4.0
CALM_S = 15.0
BRISK_FILES = 1800
KEPT_S = 2 * 86_400
_NAME = re.compile(r"flights-(\d{12})-(\d+)\.json")


class Feeder:
    """A writer of files in `directory`. Each call of `flights` returns an iterator of one year's rows in order."""

    def __init__(
        self, directory: Path, clock: Clock, flights: Callable[[], Iterator[dict[str, Any]]] = read_flights
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._flights = flights
        self._year = 0
        self._rows: Iterator[dict[str, Any]] = iter(())
        self._next_id = 0

    def run(self, stop: Event) -> None:
        """Feed until `stop` is set."""
        self.resume()
        while not stop.is_set():
            self.write_file()
            self.delete_old_files()
            stop.wait(BRISK_S if self._next_id < BRISK_FILES * ROWS else CALM_S)

    def resume(self) -> None:
        """Delete incomplete files, and continue after the newest file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for unfinished in self._directory.glob(".*.new"):
            unfinished.unlink()
        self._next_id = max((first + rows for first, rows in map(_position, self._files())), default=0)
        year_length = sum(1 for _ in self._flights()) if self._next_id else 1
        self._year, behind = divmod(self._next_id, year_length)
        self._rows = islice(self._flights(), behind, None)

    def write_file(self) -> Path:
        """Write the next ROWS rows, or fewer at the end of a year, to a new file."""
        rows = list(islice(self._rows, ROWS))
        if not rows:
            self._year += 1
            self._rows = self._flights()
            rows = list(islice(self._rows, ROWS))
        lines = [json.dumps({"id": self._next_id + number, **self._dated(row)}) for number, row in enumerate(rows)]
        path = self._directory / f"flights-{self._next_id:012d}-{len(rows)}.json"
        # Spark ignores files whose names start with a dot.
        unfinished = self._directory / f".{path.name}.new"
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.rename(path)
        self._next_id += len(rows)
        return path

    def delete_old_files(self) -> None:
        """Delete old files, except the newest file, which marks the position."""
        oldest_kept = self._clock.now_ms() / 1000 - KEPT_S
        for path in self._files()[:-1]:
            if path.stat().st_mtime >= oldest_kept:
                return
            path.unlink()

    def _dated(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self._year or not row["time_hour"]:
            return row
        year, rest = row["time_hour"].split("-", 1)
        return {**row, "time_hour": f"{int(year) + self._year}-{rest}"}

    def _files(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("flights-*.json") if _NAME.fullmatch(path.name))


def _position(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not named like the files of this feeder")
    return int(match[1]), int(match[2])
