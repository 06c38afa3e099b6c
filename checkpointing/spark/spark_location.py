"""Inspect a checkpoint location that Spark wrote without Waymark. This module only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from checkpointing.checkpoint_location.layout import BatchFile, IncompleteBatch, Owner, committed_batches, select_batch
from checkpointing.model.messages import VertexKind
from checkpointing.model.refusals import Refusal, Refused
from checkpointing.spark.timelines import TIMELINES
from checkpointing.storage.files import Entry, Files
from checkpointing.storage.layout import METADATA
from checkpointing.storage.locations import canonical
from checkpointing.storage.opening import files_for

# The query's name of a location that is used without one.
UNNAMED = ""
_OFFSETS, _COMMITS = ("v1",), ("v1", "v2")
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = {"HDFSBackedStateStoreProvider": "HDFS-backed", "RocksDBStateStoreProvider": "RocksDB"}


class ImportRefused(Refused):
    """The location cannot be imported. The text has the location, the problem, and what to do."""


@dataclass(frozen=True)
class FoundOperator:
    """A stateful operator. `name` is Spark's name for its kind, such as stateStoreSave, "" if no file has it."""

    name: str
    partitions: int


@dataclass(frozen=True)
class SparkLocation:
    """A location. `batch` is the newest committed batch, `selected` the files that a restart after it needs.

    `listing` has each file's size by its path, at the time when the location was read. `commit` is the batch's commit
    at that time, None for a location that must not be in use.
    """

    location: str
    files: Files
    listing: Mapping[str, int]
    query_id: str
    batch: int
    selected: tuple[BatchFile, ...]
    commit: Entry | None = None

    def read(self, path: str) -> bytes:
        return self.files.read(f"{self.location}/{path}")

    def check_unchanged(self) -> None:
        """Raise ImportRefused if a file has changed since `find`, because a query still runs there."""
        if listing_of(self.files, self.location) != self.listing:
            raise in_use(self.location)

    def check_same_query(self) -> None:
        """Raise ImportRefused if another query, or another copy of this one, was put there since `find_running`.

        Spark never writes a commit twice. It removes commits in their order when there are many newer ones.
        """
        commits = _entries(self.files, f"{self.location}/commits")
        is_cleaned = min(committed_batches(commits), default=-1) > self.batch
        is_same = is_cleaned or commits.get(str(self.batch)) == self.commit
        if not is_same or _query_id(self.read("metadata"), self.location) != self.query_id:
            raise in_use(self.location)

    @property
    def uncommitted_batch(self) -> int | None:
        """The batch that was started but not committed, if any. It must run again with the same input."""
        next_batch = self.batch + 1
        return next_batch if f"offsets/{next_batch}" in self.listing else None

    @cached_property
    def _offsets(self) -> Sequence[str]:
        return self.read(f"offsets/{self.batch}").decode().splitlines()

    @property
    def num_sources(self) -> int:
        return len(self._offsets) - 2

    @cached_property
    def _batch_metadata(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._offsets[1])
        except (IndexError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def batch_timestamp_ms(self) -> int | None:
        """The start time of the newest committed batch, by the old driver's clock."""
        found = self._batch_metadata.get("batchTimestampMs")
        return found if isinstance(found, int) else None

    @property
    def state_store(self) -> str:
        """The state store: RocksDB, HDFS-backed or another provider's name, "" for a query without state."""
        settings = self._batch_metadata.get("conf")
        provider = settings.get(_PROVIDER) if isinstance(settings, dict) and self.partitions else None
        name = str(provider or "").rpartition(".")[2]
        return _STORES.get(name, name)

    @property
    def partitions(self) -> Mapping[int, int]:
        """The number of state partitions of each stateful operator, by its number."""
        found: dict[int, int] = {}
        for file in self.selected:
            if file.owner.kind is VertexKind.STATEFUL:
                found[file.owner.index] = max(found.get(file.owner.index, 1), file.owner.subtask + 1)
        return dict(sorted(found.items()))

    def operators(self) -> Sequence[FoundOperator]:
        return [FoundOperator(self._operator_name(index), number) for index, number in self.partitions.items()]

    def _operator_name(self, index: int) -> str:
        """Return the name in the operator's newest metadata: `state/N/_metadata/metadata`, or `…/v2/N` per batch."""
        paths = [file.path for file in self.selected if file.path.startswith(f"state/{index}/_metadata/")]
        for path in sorted(paths, key=lambda each: (len(each), each), reverse=True):
            try:
                lines = self.read(path).decode().splitlines()
                return str(json.loads(lines[1])["operatorInfo"]["operatorName"])
            except (IndexError, KeyError, TypeError, ValueError):
                continue
        return ""

    def log_format(self, log: str) -> str:
        """Return the format version in the newest batch's file of `log`, which is `offsets` or `commits`."""
        return _version(self.read(f"{log}/{self.batch}"))


def find(location: str) -> SparkLocation:
    """Return the checkpoint location at `location`.

    Raises:
        ImportRefused: the location has no state to start from, or cannot be used.
        OSError: storage failed.
    """
    location = canonical(location)
    files = files_for(location)
    listing = listing_of(files, location)
    _check_foreign(listing, location)
    batch = _newest_batch(listing, location)
    return _found(files, location, listing, batch, _files_of_next_batch(listing, batch))


def find_running(location: str, files: Files | None = None) -> SparkLocation:
    """Return the location as of its newest commit, although its query may be running. Raise as `find`.

    The commits are listed first. Spark writes a commit last, so the files of its batch existed before the other
    listings, unless Spark has removed them. Later batches and symbolic links are left out.
    `files` replaces what the location would open.
    """
    location = canonical(location)
    files = files or files_for(location)
    commits = _entries(files, f"{location}/commits")
    listing = _running_listing(files, location)
    _check_foreign(listing, location)
    committed = committed_batches(commits)
    if not committed:
        raise ImportRefused(Refusal.NO_BATCH, location=location)
    batch = committed[-1]
    return replace(_found(files, location, listing, batch, ()), commit=commits[str(batch)])


def _found(
    files: Files, location: str, listing: Mapping[str, int], batch: int, next_files: Sequence[BatchFile]
) -> SparkLocation:
    def read(path: str) -> bytes:
        return files.read(f"{location}/{path}")

    try:
        _check_formats(files, listing, batch, next_files, location)
        selected = (*select_batch(listing, batch, read), *next_files)
        return SparkLocation(location, files, listing, _query_id(read("metadata"), location), batch, selected)
    except IncompleteBatch as error:
        raise ImportRefused(Refusal.BATCH_INCOMPLETE, location=location, batch=batch, what=str(error)) from error
    except FileNotFoundError as error:
        raise in_use(location) from error


def in_use(location: str) -> ImportRefused:
    return ImportRefused(Refusal.IN_USE, location=location)


def listing_of(files: Files, location: str) -> dict[str, int]:
    """Return the size of each file below `location` by its path there."""
    found: dict[str, int] = {}
    pending = [""]
    while pending:
        directory = pending.pop()
        place = f"{location}/{directory}".rstrip("/")
        sizes = files.sizes(place)
        found.update({f"{directory}{name}": size for name, size in sizes.items()})
        pending += [f"{directory}{name}/" for name in files.names(place) if name not in sizes]
    return found


def _running_listing(files: Files, location: str) -> dict[str, int]:
    """Return what `listing_of` does, without symbolic links. Directories may appear and disappear meanwhile."""
    found: dict[str, int] = {}
    pending = [""]
    while pending:
        directory = pending.pop()
        entries = _entries(files, f"{location}/{directory}".rstrip("/"))
        found.update({f"{directory}{name}": entry.size for name, entry in entries.items() if not entry.is_directory})
        pending += [f"{directory}{name}/" for name, entry in entries.items() if entry.is_directory]
    return found


def _entries(files: Files, directory: str) -> Mapping[str, Entry]:
    try:
        return files.entries(directory)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _check_foreign(listing: Mapping[str, int], location: str) -> None:
    if not listing:
        raise ImportRefused(Refusal.EMPTY, location=location)
    if METADATA in listing:
        raise ImportRefused(Refusal.SNAPSHOT, location=location)
    if TIMELINES in listing:
        raise ImportRefused(Refusal.OF_WAYMARK, location=location)
    if "metadata" not in listing:
        raise ImportRefused(Refusal.NOT_OF_SPARK, location=location)


def _newest_batch(listing: Mapping[str, int], location: str) -> int:
    commits = committed_batches(path.removeprefix("commits/") for path in listing if path.startswith("commits/"))
    if not commits:
        raise ImportRefused(Refusal.NO_BATCH, location=location)
    started = committed_batches(path.removeprefix("offsets/") for path in listing if path.startswith("offsets/"))
    if started and started[-1] > commits[-1] + 1:
        raise ImportRefused(Refusal.COMMITS_MISSING, location=location, started=started[-1], batch=commits[-1])
    return commits[-1]


def _files_of_next_batch(listing: Mapping[str, int], batch: int) -> Sequence[BatchFile]:
    path = f"offsets/{batch + 1}"
    return [BatchFile(path, listing[path], Owner(VertexKind.SOURCE, 0))] if path in listing else []


def _check_formats(
    files: Files, listing: Mapping[str, int], batch: int, next_files: Sequence[BatchFile], location: str
) -> None:
    logs = [
        (f"offsets/{batch}", _OFFSETS),
        (f"commits/{batch}", _COMMITS),
        *((file.path, _OFFSETS) for file in next_files),
    ]
    for path, known in logs:
        version = _version(files.read(f"{location}/{path}")) if path in listing else known[0]
        if version not in known:
            file, shown = f"{location}/{path}", repr(version[:20])
            raise ImportRefused(Refusal.UNKNOWN_FORMAT, file=file, version=shown, known=" and ".join(known))


def _version(log: bytes) -> str:
    return log.decode(errors="replace").partition("\n")[0]


def _query_id(metadata: bytes, location: str) -> str:
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise ImportRefused(Refusal.METADATA_DAMAGED, location=location) from error
