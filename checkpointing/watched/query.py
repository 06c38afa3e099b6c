"""Read one checkpoint location: at most two requests a poll, however many files it has.

A poll lists `commits/` and `offsets/`: names are batch numbers, and the times come with the listing. While details are
due, every second poll reads them instead: the newest committed batch's offsets, and one directory of the state at a
time. So a measurement of a large state takes many polls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from checkpointing.model.refusals import Refusal, Refused
from checkpointing.storage.errors import StorageError
from checkpointing.storage.files import Entry, Files
from checkpointing.watched.scanning import query_id_at

# The history that an answer lists. Spark keeps the last 100 batches by default.
MOST_BATCHES = 500
MEASURE_EVERY_MS = 5 * 60_000
OFFSETS_EVERY_MS = 15_000
# Without a new batch for this long, it is not known whether the query runs: see `Query.is_active`.
QUIET_MS, LONGEST_QUIET_MS = 10 * 60_000, 60 * 60_000
_REQUESTS = 2
_LARGEST_OFFSETS = 4_000_000
_NUMBER = re.compile(r"\d{1,18}")
_VERSIONED = re.compile(r"(\d{1,18})(?:_[0-9a-f-]{36})?\.(zip|changelog|snapshot|delta)")
_BASES = ("zip", "snapshot")
_MISSING = (FileNotFoundError, NotADirectoryError)
_FORMAT = "v1"


class Vanished(Exception):
    """The location is gone, or belongs to the query `query_id` now."""

    def __init__(self, query_id: str = "") -> None:
        super().__init__(query_id)
        self.query_id = query_id


@dataclass(frozen=True)
class Position:
    """What a batch had read at its end. `sources` has the offsets of each source as JSON text, "": none yet."""

    batch: int
    watermark_ms: int | None
    sources: tuple[str, ...]
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Measurement:
    """A walk over the directories of the state. `pending` are those that are not listed yet."""

    pending: tuple[str, ...]
    size: int = 0


@dataclass(frozen=True)
class Query:
    """A query as its files showed it at the last poll.

    `commits` and `offsets` have the files of the batches by number. `sizes`: the last two measured sizes of the state,
    by the first batch that was committed after the measurement. `went_back`: the newest number is lower than before;
    `may_go_back`: it was then found to be the same query.
    """

    location: str
    query_id: str
    commits: Mapping[int, Entry] = field(default_factory=dict)
    offsets: Mapping[int, Entry] = field(default_factory=dict)
    position: Position | None = None
    position_at_ms: int = 0
    sizes: Mapping[int, int] = field(default_factory=dict)
    measured_ms: int = 0
    measurement: Measurement | None = None
    is_listed: bool = False
    reads_details: bool = False
    went_back: bool = False
    may_go_back: bool = False
    problem: Mapping[str, Any] | None = None

    @property
    def committed(self) -> int:
        """The number of the newest committed batch, -1 if there is none."""
        return max(self.commits, default=-1)

    @property
    def in_flight(self) -> int | None:
        newest = max(self.offsets, default=-1)
        return newest if newest > self.committed else None

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the listed batches, newest first."""
        started = [] if self.in_flight is None else [self.in_flight]
        return [*started, *sorted(self.commits, reverse=True)[:MOST_BATCHES]]

    def size_of(self, batch: int) -> int | None:
        """Return the last measured size of the state before the batch was committed, None if there is none."""
        measured = max((each for each in self.sizes if each <= batch), default=None)
        return None if measured is None else self.sizes[measured]

    def is_active(self, now_ms: int) -> bool:
        """Return whether the query certainly ran a moment ago.

        A query without new input writes nothing, and neither does a stopped one. So after a silence that is long
        compared to the query's own rhythm, its status is not known.
        """
        times = sorted(each.modified_ms for each in self.commits.values() if each.modified_ms is not None)
        longest = max((later - earlier for earlier, later in pairwise(times)), default=0)
        allowed = min(max(QUIET_MS, 3 * longest), LONGEST_QUIET_MS)
        started = self.started_ms(max(self.offsets, default=-1))
        return now_ms - max([*times[-1:], started or 0]) < allowed

    def started_ms(self, batch: int) -> int | None:
        """Return when the batch's offsets were written, or its commit if Spark deleted the offsets; None: not known."""
        file = self.offsets.get(batch) or self.commits.get(batch)
        return None if file is None else file.modified_ms


def polled(query: Query, files: Files, now_ms: int) -> Query:
    """Return the query after a poll.

    Raises:
        Vanished: the location is gone, or belongs to another query.
        StorageError: it cannot be read.
    """
    if not query.reads_details:
        return _listed(query, files, now_ms)
    left = _REQUESTS
    if query.went_back:
        query, left = _identified(query, files), left - 1
    if left and _position_is_due(query, now_ms):
        query, left = _read_position(query, files, now_ms), left - 1
    while left and query.measurement is not None:
        query, left = _measured(query, query.measurement, files, now_ms), left - 1
    return replace(query, reads_details=False)


def _listed(query: Query, files: Files, now_ms: int) -> Query:
    """List the batches. Commits are listed first: each of them has offsets, unless Spark deleted them meanwhile."""
    commits, offsets = _batches(files, f"{query.location}/commits"), _batches(files, f"{query.location}/offsets")
    if commits is None and offsets is None:
        raise Vanished
    after = replace(query, commits=commits or {}, offsets=offsets or {}, is_listed=True)
    if max((*after.commits, *after.offsets), default=-1) < query.committed and not query.may_go_back:
        # Somebody put an older copy there, or deleted the checkpoint and started again. The file `metadata` tells.
        return replace(query, went_back=True, reads_details=True)
    measurement = after.measurement
    if measurement is None and now_ms >= after.measured_ms + MEASURE_EVERY_MS:
        measurement = Measurement(("state",))
    details = measurement is not None or _position_is_due(after, now_ms)
    return replace(after, measurement=measurement, reads_details=details, may_go_back=False)


def _batches(files: Files, directory: str) -> dict[int, Entry] | None:
    """Return the files of the batches, without unfinished and hidden ones; None if the directory is missing."""
    try:
        entries = files.entries(directory)
    except _MISSING:
        return None
    return {int(name): entry for name, entry in entries.items() if _NUMBER.fullmatch(name)}


def _identified(query: Query, files: Files) -> Query:
    try:
        query_id = query_id_at(files, query.location, 0)
    except _MISSING:
        raise Vanished from None
    except Refused as refused:
        return replace(query, problem=refused.as_json())
    if query_id != query.query_id:
        raise Vanished(query_id)
    cleared = replace(query, position=None, sizes={}, measurement=None, measured_ms=0)
    return replace(cleared, went_back=False, may_go_back=True)


def _position_is_due(query: Query, now_ms: int) -> bool:
    known = -1 if query.position is None else query.position.batch
    return query.committed > known and now_ms >= query.position_at_ms + OFFSETS_EVERY_MS


def _read_position(query: Query, files: Files, now_ms: int) -> Query:
    batch, path = query.committed, f"{query.location}/offsets/{query.committed}"
    read = replace(query, position_at_ms=now_ms)
    try:
        if batch in query.offsets and query.offsets[batch].size > _LARGEST_OFFSETS:
            raise Refused(Refusal.NOT_READABLE, location=path, error=f"> {_LARGEST_OFFSETS} B")
        lines = files.read(path).decode(errors="replace").splitlines()
        if lines[:1] != [_FORMAT]:
            version = repr("".join(lines[:1])[:20])
            raise Refused(Refusal.UNKNOWN_FORMAT, file=path, version=version, known=_FORMAT)
        position = _position(batch, lines)
    except _MISSING:  # Spark deleted it meanwhile
        return read
    except Refused as refused:
        return replace(read, problem=refused.as_json())
    except (OSError, ValueError, IndexError, TypeError, AttributeError) as error:
        return replace(read, problem=_unreadable(path, error))
    return replace(read, position=position, problem=None)


def _position(batch: int, lines: Sequence[str]) -> Position:
    found = json.loads(lines[1])
    watermark, settings = found.get("batchWatermarkMs"), found.get("conf") or {}
    return Position(
        batch,
        watermark if type(watermark) is int and watermark > 0 else None,  # 0: the query has none
        tuple("" if line == "-" else line for line in lines[2:]),
        {str(key): str(value) for key, value in settings.items()},
    )


def _measured(query: Query, measurement: Measurement, files: Files, now_ms: int) -> Query:
    *pending, path = measurement.pending
    try:
        entries = files.entries(f"{query.location}/{path}")
    except _MISSING:
        entries = {}
    except StorageError as error:
        problem = _unreadable(f"{query.location}/{path}", error)
        return replace(query, problem=problem, measurement=None, measured_ms=now_ms)
    below = [name for name, entry in entries.items() if entry.is_directory and not name.startswith(("_", "."))]
    pending += [f"{path}/{name}" for name in below]
    size = measurement.size + _size_in_use(entries)
    if pending:
        return replace(query, measurement=Measurement(tuple(pending), size))
    last = max(query.sizes, default=None)
    sizes = ({} if last is None else {last: query.sizes[last]}) | {query.committed + 1: size}
    return replace(query, sizes=sizes, measurement=None, measured_ms=now_ms)


def _unreadable(location: str, error: Exception) -> Mapping[str, Any]:
    return Refused(Refusal.NOT_READABLE, location=location, error=str(error)).as_json()


def _size_in_use(entries: Mapping[str, Entry]) -> int:
    """Return the size of the files in a directory without those that only older batches need.

    A state store needs its newest whole copy, and the changes since then.
    """
    versions = {name: match for name in entries if (match := _VERSIONED.fullmatch(name))}
    newest = max((int(match[1]) for match in versions.values() if match[2] in _BASES), default=0)
    return sum(
        entry.size
        for name, entry in entries.items()
        if not entry.is_directory
        and not name.startswith(".")
        and (name not in versions or _is_in_use(versions[name], newest))
    )


def _is_in_use(match: re.Match[str], newest: int) -> bool:
    """Return whether the file is the newest whole copy, or has changes after it."""
    return int(match[1]) > newest or (int(match[1]) == newest and match[2] in _BASES)
