"""Local recovery: the next attempt continues in the files that the previous one left, so that nothing is replayed.

A killed attempt leaves each query's checkpointLocation after its last commit N. Often it also leaves the offsets of
batch N+1, whose output may or may not be in the sink. A restart of Spark in that directory would run N+1 again with the
same input. This module does the same in a new directory of hard links. It links exactly the files that batch N needs,
and `offsets/N+1`, so that files of the failed batch do not become state.

Each query continues from its own last commit, and that is one consistent cut. No source and no sink returns to an
earlier position. The output of one query for another is in a durable channel, which its reader continues at its own
offsets.

Only the directory is read, because the process that wrote it is dead. Spark does not sync its files, so after a restart
of the machine they are not used: sinks may be ahead of them. Shared storage is different: another machine reads all
closed files, and checksums reveal incomplete ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkpointing.checkpoint_location.checksums import check_file, is_rewritten, sums_path
from checkpointing.checkpoint_location.layout import SINK_PREFIX, IncompleteBatch, committed_batches, select_batch
from checkpointing.checkpoint_location.schema_paths import relocate_schemas
from checkpointing.checkpoint_location.started_batches import last_started_batch
from checkpointing.model.messages import MalformedMessage, from_plain, to_plain

RECORD_NAME = "queries.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SINK_LOG = "_spark_metadata"
_SUMS_OF_A_BATCH = re.compile(r"\.(\d+)\.crc")
_STATE_FILE = re.compile(r"(?P<version>\d+)(?:_[0-9a-f-]{36})?\.(?:zip|changelog|snapshot|delta)")


class LocalStateUnusable(Exception):
    """The previous attempt's files cannot be used. The text says why."""


@dataclass(frozen=True)
class LiveQuery:
    """One query of an attempt: `directory` is its checkpointLocation below the attempt's work directory.

    `started_after` is the last batch of its state at its start, None without state; `partitions` are
    those of its stateful operators; `sink_path` is the output directory of Spark's file sink, a URI if it is not local.
    """

    name: str
    directory: str
    started_after: int | None = None
    sink_path: str | None = None
    partitions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveQueries:
    """The queries of an attempt, recorded once all of them could start.

    `boot_id` changes with each boot of the machine.
    """

    boot_id: str
    queries: tuple[LiveQuery, ...]


def boot_id() -> str:
    """Return the ID of this boot, or "" if the system does not provide one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def write_record(work: Path, queries: Sequence[LiveQuery]) -> None:
    partial = work / f".{RECORD_NAME}"
    partial.write_text(json.dumps(to_plain(LiveQueries(boot_id(), tuple(queries)))))
    partial.rename(work / RECORD_NAME)


@dataclass(frozen=True)
class LocalQuery:
    """A query as the dead attempt left it. `batch` is its last commit, or None.

    `in_flight`: the batch after that one has its offsets, and may be in the sink.
    """

    live: LiveQuery
    location: Path
    batch: int | None
    in_flight: bool

    @property
    def has_advanced(self) -> bool:
        return (-1 if self.batch is None else self.batch) > (
            -1 if self.live.started_after is None else self.live.started_after
        )


class LocalState:
    """The files that an attempt left in its work directory."""

    def __init__(self, queries: Mapping[str, LocalQuery]) -> None:
        self.queries = queries

    @classmethod
    def read(cls, work: Path, *, of_any_boot: bool = False) -> LocalState:
        """Return the state in `work`. Raise LocalStateUnusable if the attempt never started its queries.

        Raise it also if the machine has booted since, unless the state may be `of_any_boot`, as on shared storage.
        """
        try:
            record = from_plain(LiveQueries, json.loads((work / RECORD_NAME).read_text()))
        except FileNotFoundError as error:
            raise LocalStateUnusable("the attempt ended before it started its queries") from error
        except (OSError, ValueError, TypeError, AttributeError, MalformedMessage) as error:
            raise LocalStateUnusable(f"{RECORD_NAME} cannot be read: {error}") from error
        if not of_any_boot and (not record.boot_id or record.boot_id != boot_id()):
            raise LocalStateUnusable(
                "the machine was restarted since, or is a different one, so some of the local state may be missing"
            )
        return cls({live.name: _local_query(live, work / live.directory) for live in record.queries})

    @property
    def batches(self) -> dict[str, int]:
        return {name: query.batch for name, query in self.queries.items() if query.batch is not None}

    @property
    def in_flight(self) -> bool:
        return any(query.in_flight for query in self.queries.values())

    @property
    def some_advanced(self) -> bool:
        return any(query.has_advanced for query in self.queries.values())

    @property
    def all_advanced(self) -> bool:
        return all(query.has_advanced for query in self.queries.values())

    def partitions(self, query: str) -> dict[int, int]:
        """Return the partitions by stateful operator."""
        return {int(operator): number for operator, number in self.queries[query].live.partitions.items()}

    def last_commit_ms(self, query: str) -> int:
        """Return when the last committed batch ended, in epoch milliseconds, or 0 without one."""
        local = self.queries[query]
        if local.batch is None:
            return 0
        return (local.location / "commits" / str(local.batch)).stat().st_mtime_ns // 1_000_000

    def check(self) -> None:
        """Raise LocalStateUnusable if a needed file is missing, or if a checksum does not match what Spark wrote."""
        for name, query in self.queries.items():
            with _unusable_when_damaged(name):
                for path in _needed(query):
                    check_file(query.location, path)

    def check_sinks_log(self, query: str, names: Collection[str]) -> None:
        """Check the files of a file sink's log. For a local directory, `check` does this itself."""
        with _unusable_when_damaged(query):
            _check_sinks_log(self.queries[query], names)

    def build(self, query: str, location: Path) -> int | None:
        """Fill `location`, which must not exist. Return the batch after which the query continues.

        Raise LocalStateUnusable.
        """
        local = self.queries[query]
        with _unusable_when_damaged(query):
            for path in _needed(local):
                _link(local.location / path, location / path)
                if sums_path(local.location / path).exists() and not is_rewritten(path):
                    _link(sums_path(local.location / path), sums_path(location / path))
            relocate_schemas(location)
        return local.batch


@contextlib.contextmanager
def _unusable_when_damaged(query: str) -> Iterator[None]:
    try:
        yield
    except (OSError, IncompleteBatch, ValueError) as error:
        raise LocalStateUnusable(f"query {query!r}: {error}") from error


def _local_query(live: LiveQuery, location: Path) -> LocalQuery:
    commits, offsets = _numbers(live, location / "commits"), _numbers(live, location / "offsets")
    batch = max(commits, default=None)
    following = 0 if batch is None else batch + 1
    newest = max(offsets, default=-1)
    _check_no_unrecorded_batch(live, location, newest)
    if newest > following:
        raise LocalStateUnusable(
            f"query {live.name!r}: the newest offsets are of batch {newest}, the newest commit of {batch}"
        )
    if live.started_after is not None and (batch is None or batch < live.started_after):
        raise LocalStateUnusable(f"query {live.name!r}: the commit of batch {live.started_after} is missing")
    return LocalQuery(live, location, batch, following in offsets)


def _check_no_unrecorded_batch(live: LiveQuery, location: Path, newest: int) -> None:
    """Raise LocalStateUnusable if a function ran for a batch without offsets: it may have written other rows."""
    with _unusable_when_damaged(live.name):
        begun = last_started_batch(location)
    if begun > newest:
        raise LocalStateUnusable(f"query {live.name!r}: batch {begun} had begun, the offsets end with batch {newest}")


def _numbers(live: LiveQuery, directory: Path) -> list[int]:
    """Return the log's batches. If only its checksum file exists, something other than Spark removed the newest one."""
    names = _names(directory)
    found = committed_batches(names)
    newest = max((int(match[1]) for name in names if (match := _SUMS_OF_A_BATCH.fullmatch(name))), default=-1)
    if newest > max(found, default=-1):
        raise LocalStateUnusable(f"query {live.name!r}: {directory.name}/{newest} is missing")
    return found


def _names(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []


def _needed(query: LocalQuery) -> Iterator[str]:
    """Yield the needed paths in the checkpointLocation. Raise IncompleteBatch."""
    listing = dict(_listing(query.location))
    if query.live.sink_path is not None and Path(query.live.sink_path).is_absolute():
        _check_sinks_log(query, _names(Path(query.live.sink_path) / _SINK_LOG))
    if query.batch is None:
        yield from (path for path in listing if path in ("metadata", "timelines") or path.startswith("sources/"))
        if query.in_flight:
            yield "offsets/0"
        return
    _check_no_newer_state(query, query.batch, listing)
    _check_operator_directories(query.live, listing)
    for file in select_batch(listing, query.batch, lambda path: (query.location / path).read_bytes()):
        yield file.path
    if query.in_flight:
        yield f"offsets/{query.batch + 1}"


def _listing(location: Path) -> Iterator[tuple[str, int]]:
    """Yield sizes by path, without Hadoop's checksum files and Spark's unfinished files."""
    for directory, _, names in os.walk(location):
        for name in names:
            path = Path(directory, name)
            if not name.startswith(".") and not name.endswith(".tmp"):
                yield str(path.relative_to(location)), path.stat().st_size


def _check_no_newer_state(query: LocalQuery, batch: int, listing: Mapping[str, int]) -> None:
    """Raise IncompleteBatch if state is newer than the running batch: newer offsets and commits must have been lost."""
    newest = batch + 1 if query.in_flight else batch
    for path in listing:
        match = _STATE_FILE.fullmatch(path.rpartition("/")[2]) if path.startswith("state/") else None
        if match is not None and int(match["version"]) > newest + 1:
            raise IncompleteBatch(
                f"{path} is of batch {int(match['version']) - 1}, newer than the newest offsets, {newest}"
            )


def _check_sinks_log(query: LocalQuery, names: Collection[str]) -> None:
    """Raise IncompleteBatch if the log of Spark's file sink does not fit the offsets.

    The sink skips a batch that is in its log, so Spark does not compute the batch's state. Without the commit of the
    batch, that state cannot be found, and the query would fail at its first batch. A query without state may continue.
    """
    batch = -1 if query.batch is None else query.batch
    newest = batch + 1 if query.in_flight else batch
    logged = [int(name.partition(".")[0]) for name in names if re.fullmatch(r"\d+(?:\.compact)?", name)]
    last = max(logged, default=-1)
    if not batch <= last <= newest:
        end = f"ends with batch {last}" if logged else "has no batch"
        raise IncompleteBatch(f"{SINK_PREFIX}{_SINK_LOG} {end}, but the newest offsets are of batch {newest}")
    if last > batch and query.live.partitions:
        raise IncompleteBatch(f"{SINK_PREFIX}{_SINK_LOG} has batch {last}, so Spark would skip it and lose its state")


def _check_operator_directories(live: LiveQuery, listing: Mapping[str, int]) -> None:
    """Raise IncompleteBatch if a directory of an operator is missing.

    Choosing the batch's files does not detect that.
    """
    there = {tuple(path.split("/")[:3]) for path in listing}
    for operator, partitions in live.partitions.items():
        for name in ("_metadata", *(str(partition) for partition in range(partitions))):
            if ("state", operator, name) not in there:
                raise IncompleteBatch(f"state/{operator}/{name} is missing")


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the target is on another file system, or the file system has no links
        shutil.copyfile(source, target)
