"""Read one checkpoint location: at most two requests a poll, however many files it has.

The first request lists `offsets/`: names are the numbers of the batches, and the listing has the times of their starts.
The second one lists `commits/`. While details are due, every second poll reads one of them instead: the offsets of the
newest committed batch, or one directory of the state. So the measurement of a large state takes many polls.

Several workers poll a query in turns. So an answer must never be older than that of another worker: a poll that does
not list the commits reports a batch as pending until the next one does, and reports each batch that has started.
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
OFFSETS_EVERY_MS = 30_000
# Without a new batch for this long, it is not known whether the query runs: see `Query.is_active`.
QUIET_MS, LONGEST_QUIET_MS = 10 * 60_000, 60 * 60_000
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

    pending: tuple[str, ...] = ("state",)
    size: int = 0


@dataclass(frozen=True)
class Query:
    """A query as its files showed it at the last poll.

    `offsets` and `commits` have the files of the batches by number; each commit has offsets. `state_size` (None: not
    known) holds for batches from `sized_from` on. `reads_details`: the next poll does not list the commits.
    """

    location: str
    query_id: str
    offsets: Mapping[int, Entry] = field(default_factory=dict)
    commits: Mapping[int, Entry] = field(default_factory=dict)
    position: Position | None = None
    position_at_ms: int = 0
    state_size: int | None = None
    sized_from: int = 0
    measured_ms: int = 0
    measurement: Measurement | None = None
    reads_details: bool = False
    problem: Mapping[str, Any] | None = None

    @property
    def started(self) -> int:
        """The number of the newest batch, -1 if there is none."""
        return max(self.offsets, default=-1)

    @property
    def committed(self) -> int:
        """The number of the newest batch whose commit was listed, -1 if there is none."""
        return max(self.commits, default=-1)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the listed batches, newest first."""
        return sorted(self.offsets, reverse=True)[:MOST_BATCHES]

    def size_of(self, batch: int) -> int | None:
        """Return the size of the state when it was last measured before the batch ended, None if it is not known."""
        return self.state_size if batch >= self.sized_from else None

    def is_active(self, now_ms: int) -> bool:
        """Return whether the query certainly ran a moment ago.

        A query without new input writes nothing, and neither does a stopped one. So after a silence that is long
        compared to the usual time between its batches, its status is not known.
        """
        started = sorted(each.modified_ms for each in self.offsets.values() if each.modified_ms is not None)
        longest = max((later - earlier for earlier, later in pairwise(started)), default=0)
        allowed = min(max(QUIET_MS, 3 * longest), LONGEST_QUIET_MS)
        ended = [each.modified_ms or 0 for each in self.commits.values()]
        return now_ms - max([*started[-1:], *ended, 0]) < allowed


def polled(query: Query, files: Files, now_ms: int) -> Query:
    """Return the query after a poll.

    Raises:
        Vanished: the location is gone, or belongs to another query.
        StorageError: it cannot be read.
    """
    offsets = _batches(files, f"{query.location}/offsets")
    if offsets is None or _is_rewritten(query, offsets):
        # Another copy was put at the location, or the query was started again without its checkpoint. `metadata` has
        # the ID of the present query.
        _check_identity(query, files)
        return Query(query.location, query.query_id, offsets or {}, measured_ms=now_ms)
    query = replace(query, offsets=offsets, commits=_kept(query.commits, offsets))
    if query.reads_details:
        return replace(_with_detail(query, files, now_ms), reads_details=False)
    commits = _batches(files, f"{query.location}/commits")
    query = replace(query, commits=_kept(commits or {}, offsets))
    # Before the first commit, the state is not complete.
    if query.commits and query.measurement is None and now_ms >= query.measured_ms + MEASURE_EVERY_MS:
        query = replace(query, measurement=Measurement())
    return replace(query, reads_details=query.measurement is not None or _position_is_due(query, now_ms))


def _batches(files: Files, directory: str) -> dict[int, Entry] | None:
    """Return the files of the batches, without unfinished and hidden ones; None if the directory is missing."""
    try:
        entries = files.entries(directory)
    except _MISSING:
        return None
    return {int(name): entry for name, entry in entries.items() if _NUMBER.fullmatch(name)}


def _kept(commits: Mapping[int, Entry], offsets: Mapping[int, Entry]) -> dict[int, Entry]:
    return {batch: commit for batch, commit in commits.items() if batch in offsets}


def _is_rewritten(query: Query, offsets: Mapping[int, Entry]) -> bool:
    """Return whether the batches are not those of the last poll, continued. Spark never writes offsets twice."""
    if max(offsets, default=-1) < query.started:
        return True
    return any(offsets[batch] != known for batch, known in query.offsets.items() if batch in offsets)


def _check_identity(query: Query, files: Files) -> None:
    try:
        query_id = query_id_at(files, query.location, 0)
    except _MISSING:
        raise Vanished from None
    except (Refused, OSError) as error:
        raise StorageError(str(error)) from error
    if query_id != query.query_id:
        raise Vanished(query_id)


def _with_detail(query: Query, files: Files, now_ms: int) -> Query:
    if _position_is_due(query, now_ms):
        return _read_position(query, files, now_ms)
    return query if query.measurement is None else _measured(query, query.measurement, files, now_ms)


def _position_is_due(query: Query, now_ms: int) -> bool:
    known = -1 if query.position is None else query.position.batch
    return query.committed > known and now_ms >= query.position_at_ms + OFFSETS_EVERY_MS


def _read_position(query: Query, files: Files, now_ms: int) -> Query:
    batch, path = query.committed, f"{query.location}/offsets/{query.committed}"
    read = replace(query, position_at_ms=now_ms)
    try:
        if batch in query.offsets and query.offsets[batch].size > _LARGEST_OFFSETS:
            raise Refused(Refusal.NOT_READABLE, location=path, error=f"> {_LARGEST_OFFSETS} B")
        lines = files.read(path).decode(errors="replace").rstrip("\n").split("\n")
        if lines[:1] != [_FORMAT]:
            raise Refused(Refusal.UNKNOWN_FORMAT, file=path, version=repr(lines[0][:20]), known=_FORMAT)
        position = _position(batch, lines)
    except _MISSING:  # Spark deleted the file meanwhile
        return read
    except Refused as refused:
        return replace(read, problem=refused.as_json())
    except (OSError, ValueError, IndexError, TypeError, AttributeError, RecursionError) as error:
        return replace(read, problem=_unreadable(path, error))
    return replace(read, position=position, problem=None)


def _position(batch: int, lines: Sequence[str]) -> Position:
    found = json.loads(lines[1])
    watermark, settings = found.get("batchWatermarkMs"), found.get("conf") or {}
    return Position(
        batch,
        watermark if type(watermark) is int and watermark > 0 else None,  # 0: the query has no watermark
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
    return replace(query, state_size=size, sized_from=query.started + 1, measurement=None, measured_ms=now_ms)


def _unreadable(location: str, error: Exception) -> Mapping[str, Any]:
    return Refused(Refusal.NOT_READABLE, location=location, error=str(error)).as_json()


def _size_in_use(entries: Mapping[str, Entry]) -> int:
    """Return the size of the files in a directory without those that only older batches need.

    A state store needs its newest whole copy, and the changes since then.
    """
    versions = {name: match for name in entries if (match := _VERSIONED.fullmatch(name))}
    newest = max((int(match[1]) for match in versions.values() if match[2] in _BASES), default=-1)
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
