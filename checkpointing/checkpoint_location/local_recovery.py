"""Local recovery: the next attempt goes on in what the one before left, so that nothing is replayed.

A killed attempt leaves each query's checkpointLocation after its last commit N, and often the offsets of batch N+1,
whose output may or may not be in the sink. A restart of Spark in that directory would run N+1 again with the same
input. The same is done here, in a fresh directory of hard links, with exactly the files that batch N needs and
`offsets/N+1`: files of the batch that failed must not be picked up as state.

Each query goes on from its own last commit, and that is one consistent cut: nothing is rewound, neither a source nor a
sink, and what one query wrote for another lies in a durable channel, where its reader goes on at its own offsets.

Everything here is read from the directory alone, for the process that wrote it is dead. Spark does not make its files
durable, so after the machine's restart they are not trusted: sinks may be ahead of them. On shared storage they are:
another machine reads what was closed, and what is torn is told by its checksum.
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

from checkpointing.checkpoint_location.begun import begun_batch
from checkpointing.checkpoint_location.checksums import check_file, is_rewritten, sums_path
from checkpointing.checkpoint_location.layout import SINK_PREFIX, IncompleteBatch, committed_batches, select_batch
from checkpointing.checkpoint_location.schema_paths import relocate_schemas
from checkpointing.model.messages import MalformedMessage, from_plain, to_plain

RECORD_NAME = "queries.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SINK_LOG = "_spark_metadata"
_SUMS_OF_A_BATCH = re.compile(r"\.(\d+)\.crc")
_STATE_FILE = re.compile(r"(?P<version>\d+)(?:_[0-9a-f-]{36})?\.(?:zip|changelog|snapshot|delta)")


class LocalStateUnusable(Exception):
    """What the attempt before left cannot be gone on with; the text says why."""


@dataclass(frozen=True)
class LiveQuery:
    """One query of an attempt: `directory` is its checkpointLocation below the attempt's work directory.

    `started_after` is the batch that its state ended with before it started, None when it had none; `partitions` are
    those of its stateful operators; `sink_path` is the output directory of Spark's file sink, a URI if it is not local.
    """

    name: str
    directory: str
    started_after: int | None = None
    sink_path: str | None = None
    partitions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveQueries:
    """Written once all queries of an attempt could start; `boot_id` is the machine's since its last restart."""

    boot_id: str
    queries: tuple[LiveQuery, ...]


def boot_id() -> str:
    """ "" where the system does not say."""
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
    """A query as the dead attempt left it. `batch` is its last commit, None when it never committed one.

    `in_flight`: the batch after that has its offsets, and may be in the sink.
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
    """What an attempt left in its work directory."""

    def __init__(self, queries: Mapping[str, LocalQuery]) -> None:
        self.queries = queries

    @classmethod
    def read(cls, work: Path, *, of_any_boot: bool = False) -> LocalState:
        """LocalStateUnusable when the attempt never came to start its queries.

        Also on another boot of the machine than its, unless it may be `of_any_boot`, as on shared storage.
        """
        try:
            record = from_plain(LiveQueries, json.loads((work / RECORD_NAME).read_text()))
        except FileNotFoundError as error:
            raise LocalStateUnusable("it ended before it started its queries") from error
        except (OSError, ValueError, TypeError, AttributeError, MalformedMessage) as error:
            raise LocalStateUnusable(f"{RECORD_NAME} cannot be read: {error}") from error
        if not of_any_boot and (not record.boot_id or record.boot_id != boot_id()):
            raise LocalStateUnusable("the machine was restarted since, or is another: not all of it may be there")
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
        """Partitions by stateful operator."""
        return {int(operator): number for operator, number in self.queries[query].live.partitions.items()}

    def last_commit_ms(self, query: str) -> int:
        """When the batch that it goes on after had ended, in epoch milliseconds; 0 when none had."""
        local = self.queries[query]
        if local.batch is None:
            return 0
        return (local.location / "commits" / str(local.batch)).stat().st_mtime_ns // 1_000_000

    def check(self) -> None:
        """LocalStateUnusable unless every file that is needed is there and what Spark wrote, as far as can be told."""
        for name, query in self.queries.items():
            with _unusable_when_damaged(name):
                for path in _needed(query):
                    check_file(query.location, path)

    def check_sinks_log(self, query: str, names: Collection[str]) -> None:
        """Check the files of a file sink's log as `check` does, which knows those of a local directory itself."""
        with _unusable_when_damaged(query):
            _check_sinks_log(self.queries[query], names)

    def build(self, query: str, location: Path) -> int | None:
        """Fill `location`, which must not exist. The batch that the query continues after; LocalStateUnusable."""
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
    _check_nothing_else_began(live, location, newest)
    if newest > following:
        raise LocalStateUnusable(f"query {live.name!r}: there are offsets of batch {newest}, commits end with {batch}")
    if live.started_after is not None and (batch is None or batch < live.started_after):
        raise LocalStateUnusable(f"query {live.name!r}: the commit of batch {live.started_after} is missing")
    return LocalQuery(live, location, batch, following in offsets)


def _check_nothing_else_began(live: LiveQuery, location: Path, newest: int) -> None:
    """A function of a batch beyond the newest offsets may have written what the next batch of its number would not."""
    with _unusable_when_damaged(live.name):
        begun = begun_batch(location)
    if begun > newest:
        raise LocalStateUnusable(f"query {live.name!r}: batch {begun} had begun, the offsets end with batch {newest}")


def _numbers(live: LiveQuery, directory: Path) -> list[int]:
    """The log's batches. The newest was removed by another than Spark if its checksums are still there."""
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
    """Paths in the checkpointLocation; IncompleteBatch."""
    listing = dict(_listing(query.location))
    if query.live.sink_path is not None and Path(query.live.sink_path).is_absolute():
        _check_sinks_log(query, _names(Path(query.live.sink_path) / _SINK_LOG))
    if query.batch is None:
        yield from (path for path in listing if path in ("metadata", "timelines") or path.startswith("sources/"))
        if query.in_flight:
            yield "offsets/0"
        return
    _check_nothing_is_ahead(query, query.batch, listing)
    _check_every_operator_is_there(query.live, listing)
    for file in select_batch(listing, query.batch, lambda path: (query.location / path).read_bytes()):
        yield file.path
    if query.in_flight:
        yield f"offsets/{query.batch + 1}"


def _listing(location: Path) -> Iterator[tuple[str, int]]:
    """Sizes by path, Hadoop's side files and Spark's unfinished ones left out."""
    for directory, _, names in os.walk(location):
        for name in names:
            path = Path(directory, name)
            if not name.startswith(".") and not name.endswith(".tmp"):
                yield str(path.relative_to(location)), path.stat().st_size


def _check_nothing_is_ahead(query: LocalQuery, batch: int, listing: Mapping[str, int]) -> None:
    """A state or a sink beyond the batch in flight means that newer offsets and commits were there and are gone."""
    newest = batch + 1 if query.in_flight else batch
    for path in listing:
        match = _STATE_FILE.fullmatch(path.rpartition("/")[2]) if path.startswith("state/") else None
        if match is not None and int(match["version"]) > newest + 1:
            raise IncompleteBatch(f"{path} is of batch {int(match['version']) - 1}, the offsets end with {newest}")


def _check_sinks_log(query: LocalQuery, names: Collection[str]) -> None:
    """Spark's file sink skips a batch that its log has, and with it the batch's state, which only the commit that is
    missing would lead to: the query would end at its first batch. Without state there is nothing to miss.
    """
    batch = -1 if query.batch is None else query.batch
    newest = batch + 1 if query.in_flight else batch
    logged = [int(name.partition(".")[0]) for name in names if re.fullmatch(r"\d+(?:\.compact)?", name)]
    last = max(logged, default=-1)
    if not batch <= last <= newest:
        told = f"ends with batch {last}" if logged else "has no batch"
        raise IncompleteBatch(f"{SINK_PREFIX}{_SINK_LOG} {told}, the offsets end with {newest}")
    if last > batch and query.live.partitions:
        raise IncompleteBatch(f"{SINK_PREFIX}{_SINK_LOG} has batch {last}, which would be skipped, its state not kept")


def _check_every_operator_is_there(live: LiveQuery, listing: Mapping[str, int]) -> None:
    """What is not there at all is not missed when the files of a batch are chosen."""
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
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
