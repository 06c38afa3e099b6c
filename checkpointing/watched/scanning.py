"""Find the checkpoint locations below a root, some listings at a time.

A pass visits the directories depth first in the order of their names. So the last visited path is all that the next
step needs, whichever process takes it. Known locations are not visited again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from checkpointing.model.refusals import Refusal, Refused
from checkpointing.storage.errors import StorageError
from checkpointing.storage.files import Entry, Files
from checkpointing.storage.layout import is_snapshot_directory

PASS_EVERY_MS = 60_000
DEEPEST = 12
MOST_LOCATIONS = 2_000
_MOST_PROBLEMS = 10
_LARGEST_METADATA = 100_000
# Directories of tables, and those that only Waymark's own locations have.
_SKIPPED = frozenset({"_delta_log", "_spark_metadata"})
_OWN = "timelines"
_MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class Found:
    """A checkpoint location. `started_ms`: when its query was started first. `state`: the query's last known status.

    `previous_id` is the query that had this location before: its checkpoint was deleted. `state_size`, None if unknown,
    holds for batches from `sized_from` on; it was measured at `measured_ms`.
    """

    query_id: str
    started_ms: int
    state: str
    moved_ms: int
    previous_id: str = ""
    state_size: int | None = None
    sized_from: int = 0
    measured_ms: int = 0


@dataclass(frozen=True)
class Scan:
    """The progress of a scan. Paths are relative to the root; "" is the root itself.

    `position`: the directory that this pass visited last, None between two passes. `passes`: how many have ended, the
    last one at `ended_ms`. `problems`: refusals as JSON. `lost`: a location is gone since the last pass.
    """

    found: Mapping[str, Found]
    position: str | None = None
    passes: int = 0
    ended_ms: int = 0
    problems: tuple[Mapping[str, Any], ...] = ()
    lost: bool = False

    def as_row(self) -> dict[str, Any]:
        return {**asdict(self), "problems": list(self.problems)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        if not row:
            return cls({})
        found = {path: Found(**each) for path, each in row["found"].items()}
        return cls(**{**row, "found": found, "problems": tuple(row["problems"])})

    def with_found(self, path: str, found: Found) -> Self:
        return replace(self, found={**self.found, path: found})

    def without(self, path: str) -> Self:
        """Return the scan without a location that is gone. The next step begins a new pass."""
        found = {each: value for each, value in self.found.items() if each != path}
        return replace(self, found=found, position=None, ended_ms=0, lost=True)


class RootMissing(FileNotFoundError):
    """The root does not exist, or holds nothing although locations were there: it may not be mounted."""


def location_of(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def advance(scan: Scan, root: str, files: Files, now_ms: int, may_continue: Callable[[], bool]) -> Scan:
    """Continue the scan while `may_continue`, which is called before each listing, returns True.

    Raises:
        RootMissing, StorageError: the root cannot be listed.
    """
    if scan.position is None and now_ms < scan.ended_ms + PASS_EVERY_MS:
        return scan
    return _Pass(scan, root, files, may_continue).advance(now_ms)


class _Pass:
    def __init__(self, scan: Scan, root: str, files: Files, may_continue: Callable[[], bool]) -> None:
        self._root = root
        self._files = files
        self._may_continue = may_continue
        self._position = scan.position
        self._found = dict(scan.found)
        self._ids = {each.query_id for each in scan.found.values()}
        self._problems = [] if scan.position is None else list(scan.problems)
        self._passes = scan.passes
        self._lost = scan.lost

    def advance(self, now_ms: int) -> Scan:
        pending = [""] if self._position is None else self._resumed(self._position)
        while pending and self._may_continue():
            path = pending.pop()
            entries = self._listed(path)
            is_location = "metadata" in entries and any(log in entries for log in ("offsets", "commits"))
            if is_location and _OWN not in entries:
                self._remember(path, entries, now_ms)
            if not is_location:
                pending += self._below(path, entries)
            self._position = path
        over = not pending
        return Scan(
            self._found,
            None if over else self._position,
            self._passes + over,
            now_ms if over else 0,
            tuple(self._problems),
            self._lost and not over,
        )

    def _resumed(self, position: str) -> list[str]:
        """Return the directories after the position, the next one last, as if this pass had not been interrupted."""
        parts = position.split("/") if position else []
        pending: list[str] = []
        for depth in range(len(parts) + 1):
            parent = "/".join(parts[:depth])
            after = parts[depth] if depth < len(parts) else ""
            pending += [each for each in self._below(parent, self._listed(parent)) if _name(each) > after]
        return pending

    def _listed(self, path: str) -> Mapping[str, Entry]:
        try:
            entries = self._files.entries(location_of(self._root, path))
        except _MISSING as error:
            if not path:
                raise RootMissing(self._root) from error
            return {}
        except StorageError as error:
            if not path:
                raise
            self._note(Refused(Refusal.NOT_READABLE, location=location_of(self._root, path), error=str(error)))
            return {}
        if not path and not entries and (self._found or self._lost):
            raise RootMissing(self._root)
        return entries

    def _below(self, path: str, entries: Mapping[str, Entry]) -> Iterator[str]:
        """Yield the directories to visit below `path`, the first one last. Hive's partitions hold data only."""
        if path in self._found or path.count("/") + 1 >= DEEPEST:
            return
        for name in sorted((name for name, entry in entries.items() if entry.is_directory), reverse=True):
            child = f"{path}/{name}" if path else name
            if name.startswith(".") or "=" in name or name in _SKIPPED or child in self._found:
                continue
            if is_snapshot_directory(name):  # of Waymark: a savepoint contains copies of locations
                continue
            if name.isprintable():
                yield child
            else:
                self._note(Refused(Refusal.BAD_DIRECTORY_NAME, location=ascii(child)))

    def _remember(self, path: str, entries: Mapping[str, Entry], now_ms: int) -> None:
        place = location_of(self._root, path)
        if path in self._found:
            return
        if len(self._found) >= MOST_LOCATIONS:
            self._note(Refused(Refusal.TOO_MANY_LOCATIONS, most=MOST_LOCATIONS))
            return
        try:
            query_id = query_id_at(self._files, place, entries["metadata"].size)
        except Refused as refused:
            self._note(refused)
        except _MISSING:
            pass
        except OSError as error:
            self._note(Refused(Refusal.NOT_READABLE, location=place, error=str(error)))
        else:
            if query_id in self._ids:
                self._note(Refused(Refusal.COPY, location=place, query=query_id))
                return
            self._ids.add(query_id)
            started_ms = entries["metadata"].modified_ms or now_ms
            self._found[path] = Found(query_id, started_ms, "RECONCILING", started_ms)

    def _note(self, refused: Refused) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(refused.as_json())


def query_id_at(files: Files, location: str, size: int) -> str:
    """Return the ID of the query in 32 hexadecimal digits. Raise Refused if the file `metadata` does not name it."""
    if size > _LARGEST_METADATA:
        raise Refused(Refusal.METADATA_DAMAGED, location=location)
    try:
        return uuid.UUID(json.loads(files.read(f"{location}/metadata"))["id"]).hex
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(Refusal.METADATA_DAMAGED, location=location) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]
