"""Which files of a streaming query's checkpointLocation make up batch N, and which subtask each belongs to.

Pure: works on a listing and a way to read a small file. Layouts as PySpark 4.3 writes them:

    metadata                                the query's id
    offsets/N                               the input of batch N, written before it runs
    commits/N                               batch N is done; state version N+1 is complete from here on
    timelines                               ours: the lineage of the output (timelines.py)
    sources/<i>/…                           a source's own log
    state/<operator>/_metadata/…            operator-level metadata, also _stateSchema/…
    state/<operator>/<partition>/[<store>/] one store's files; a join has four named stores per partition
        HDFS         V.delta, V.snapshot
        RocksDB      V.zip (+ SSTs/, logs/), V.changelog; format 2 writes V_<unique id>.changelog and so on
    operators/<name>/N                      ours: operator state of a foreachBatch function after batch N
    sink:_spark_metadata/…                  a file sink's log, read from its output path

A version is rebuilt from the newest base (snapshot or zip) at or below it and every delta or changelog after that base.
A listing maps each path to its size. Sizes are read only for chosen files, because there may be tens of thousands.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from checkpointing.model.messages import VertexKind

Listing = Mapping[str, int]
ReadFile = Callable[[str], bytes]

SINK_PREFIX = "sink:"
_VERSIONED = re.compile(r"(?P<version>\d+)(?:_(?P<uid>[0-9a-f-]{36}))?\.(?P<kind>zip|changelog|snapshot|delta)")
_LOG_ENTRY = re.compile(r"\d+(?:\.compact)?")
_BASES = ("zip", "snapshot")
_COMPACTED = ".compact"
_CHECKSUM = ".crc"
_DATA_DIRECTORIES = ("SSTs", "logs")


class IncompleteBatch(Exception):
    """The listing lacks a file of the batch: it was made too early, or the file was deleted or is damaged.

    The text names the file.
    """


@dataclass(frozen=True)
class Owner:
    """The subtask that a file belongs to. `index` is the source's, the stateful operator's, or 0 for the sink."""

    kind: VertexKind
    index: int
    subtask: int = 0


@dataclass(frozen=True)
class BatchFile:
    """A file of a batch. `immutable`: Spark never writes this name again, so several snapshots may share it.

    `content`, if set, is stored under the name instead of the file's content.
    """

    path: str
    size: int
    owner: Owner
    immutable: bool = False
    content: bytes | None = None


SINK = Owner(VertexKind.SINK, 0)
_FIRST_SOURCE = Owner(VertexKind.SOURCE, 0)


def committed_batches(names: Iterable[str]) -> list[int]:
    """Return the batch numbers among the file names of a log directory (`offsets`, `commits`), ascending."""
    return sorted(int(name) for name in names if name.isdigit())


def select_batch(listing: Listing, batch: int, read: ReadFile) -> tuple[BatchFile, ...]:
    """Return exactly the files that a restart after batch `batch` needs. Raise IncompleteBatch if one is missing."""
    files = [
        *_logs(listing, batch),
        *_sources(listing),
        *_state(listing, batch, read),
        *_operator_state(listing, batch),
        *_sink_log(listing, batch),
    ]
    return tuple(sorted(files, key=lambda file: file.path))


def _logs(listing: Listing, batch: int) -> Iterator[BatchFile]:
    wanted = [("metadata", SINK), (f"offsets/{batch}", _FIRST_SOURCE), (f"commits/{batch}", SINK)]
    if batch > 0:
        wanted.append((f"offsets/{batch - 1}", _FIRST_SOURCE))
    if "timelines" in listing:
        wanted.append(("timelines", SINK))
    for path, owner in wanted:
        yield BatchFile(path, _size(listing, path), owner)


def _size(listing: Listing, path: str) -> int:
    if path not in listing:
        raise IncompleteBatch(f"{path} is missing")
    return listing[path]


# --- sources ---------------------------------------------------------------------------------------------------------


def source_positions(offsets: bytes) -> dict[int, str]:
    """Return how far each source had been read, by its number. `offsets` is the content of an `offsets/N`.

    A source that has read nothing is left out. With an unknown format, all sources are left out.
    """
    lines = offsets.decode().splitlines()
    if lines[:1] != ["v1"]:
        return {}
    return {index: line for index, line in enumerate(lines[2:]) if line != "-"}


def _sources(listing: Listing) -> Iterator[BatchFile]:
    """Yield all entries of the sources' logs.

    A log may be ahead of the batch: later entries are the next batch's input.
    """
    logs: dict[str, list[str]] = defaultdict(list)
    for path in listing:
        directory, _, name = path.rpartition("/")
        if path.startswith("sources/") and not _hidden(name):
            logs[directory].append(name)
    for directory, names in logs.items():
        index = directory.removeprefix("sources").strip("/").partition("/")[0]
        if index.isdigit():
            for name in _without_compacted(names):
                yield _log_file(listing, f"{directory}/{name}", Owner(VertexKind.SOURCE, int(index)))


def check_source_logs(listing: Listing, offsets: bytes) -> None:
    """Check that the logs of file sources have every entry that a restart needs. Raise IncompleteBatch.

    The listing of a running query's files may lack some, because Spark compacts a log meanwhile. `offsets` is the
    content of the batch's `offsets/N`. Other sources have logs that only they can read.
    """
    for source, text in source_positions(offsets).items():
        position = _log_offset(text)
        if position is None:
            continue
        prefix = f"sources/{source}/"
        names = {path.removeprefix(prefix) for path in listing if path.startswith(prefix)}
        numbers = [int(name.partition(".")[0]) for name in names if _LOG_ENTRY.fullmatch(name)]
        last = max(numbers, default=-1)
        if last < position or entries_up_to(names, last) is None:
            raise IncompleteBatch(f"{prefix} lacks entries up to {max(last, position)}")


def _log_offset(text: str) -> int | None:
    """Return the number of the last entry that was read, from the offsets of a file source; None for another one."""
    try:
        offset = json.loads(text)
    except ValueError:
        return None
    found = offset.get("logOffset") if isinstance(offset, dict) else None
    return found if isinstance(found, int) else None


def _log_file(listing: Listing, path: str, owner: Owner) -> BatchFile:
    """Return a file of a source's or a sink's log. A compacted file grows with all that was ever read or written."""
    return BatchFile(path, listing[path], owner, immutable=path.endswith(_COMPACTED))


def _without_compacted(names: Collection[str]) -> Iterator[str]:
    """Return the names without files older than the second newest compacted file.

    The newest one has the entries of all before it. From the distance of these two, Spark computes its compaction
    interval. It keeps the other files for ten minutes.
    """
    compacts = _compacts(names)
    oldest = compacts[-2] if len(compacts) > 1 else 0
    return (name for name in names if not _LOG_ENTRY.fullmatch(name) or int(name.partition(".")[0]) >= oldest)


def _compacts(names: Iterable[str]) -> list[int]:
    """Return the numbers of the compacted files, ascending. Each such file contains all entries before it, too."""
    return sorted(
        int(name.partition(".")[0]) for name in names if name.endswith(_COMPACTED) and _LOG_ENTRY.fullmatch(name)
    )


def _hidden(name: str) -> bool:
    """Return whether the file is Hadoop's checksum (`.7.crc`) or unfinished (`.7.<uuid>.tmp`): not part of a batch."""
    return name.startswith(".") or name.endswith(".tmp")


# --- state -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Store:
    operator: int
    partition: int
    name: str
    directory: str


def _state(listing: Listing, batch: int, read: ReadFile) -> Iterator[BatchFile]:
    stores: dict[_Store, set[str]] = defaultdict(set)
    places: dict[str, _Place | None] = {}  # there are far fewer directories than files
    for path in listing:
        directory, _, name = path.rpartition("/")
        if directory not in places:
            places[directory] = _place(directory)
        place = places[directory]
        if place is None or _hidden(name):
            continue
        if place.store is not None:
            stores[place.store].add(place.prefix + name)
        elif not place.is_of_operator or _is_up_to(batch, name):
            yield BatchFile(path, listing[path], place.owner)
    committed = _CommittedIds(listing, read)
    for store in sorted(stores, key=lambda each: each.directory):
        yield from _store_files(listing, store, stores[store], batch, committed, read)


def _is_up_to(batch: int, name: str) -> bool:
    """Return whether the file belongs to `batch` or an earlier one.

    Operator metadata may have a batch (`3`, `3_<uuid>`).
    """
    match = re.match(r"\d+", name)
    return match is None or int(match[0]) <= batch


@dataclass(frozen=True)
class _Place:
    """The content of a directory below `state`: operator metadata, a partition's metadata, or a store's files.

    `prefix` leads from the store's directory to this one.
    """

    owner: Owner
    is_of_operator: bool = False
    store: _Store | None = None
    prefix: str = ""


def _place(directory: str) -> _Place | None:
    """Return the content of the directory, or None if it does not belong to the state."""
    parts = directory.split("/")
    if parts[0] != "state" or len(parts) < 3 or not parts[1].isdigit():
        return None
    operator = int(parts[1])
    if not parts[2].isdigit():
        return _Place(Owner(VertexKind.STATEFUL, operator), is_of_operator=True)
    owner, rest = Owner(VertexKind.STATEFUL, operator, int(parts[2])), parts[3:]
    if "_metadata" in rest:
        return _Place(owner)
    named = bool(rest) and rest[0] not in _DATA_DIRECTORIES
    store = _Store(operator, owner.subtask, rest[0] if named else "default", "/".join(parts[: 4 if named else 3]))
    return _Place(owner, store=store, prefix="".join(f"{part}/" for part in (rest[1:] if named else rest)))


class _CommittedIds:
    """The unique IDs (format 2) in each batch's commit. They are the lineage of the state, without failed attempts."""

    def __init__(self, listing: Listing, read: ReadFile) -> None:
        self._listing = listing
        self._read = read
        self._known: dict[int, dict[str, list[list[str]]]] = {}

    def of(self, store: _Store, version: int) -> frozenset[str] | None:
        """Return the IDs of `version` in this partition's stores, or None if the commit is missing or names none."""
        partitions = self._commit(version - 1).get(str(store.operator), [])
        if store.partition >= len(partitions):
            return None
        return frozenset(partitions[store.partition]) or None

    def _commit(self, batch: int) -> dict[str, list[list[str]]]:
        if batch not in self._known:
            self._known[batch] = self._parse(f"commits/{batch}")
        return self._known[batch]

    def _parse(self, path: str) -> dict[str, list[list[str]]]:
        if path not in self._listing:
            return {}
        try:
            text = self._read(path).decode()
        except FileNotFoundError:  # the file was deleted after the listing
            return {}
        body = text.partition("\n")[2]
        ids: dict[str, list[list[str]]] = (json.loads(body) if body.strip() else {}).get("stateUniqueIds") or {}
        return ids


def _store_files(
    listing: Listing, store: _Store, names: set[str], batch: int, committed: _CommittedIds, read: ReadFile
) -> Iterator[BatchFile]:
    target = batch + 1
    versions = _versions(names, target, store, committed)
    base = max((number for number, version in versions.items() if version.base), default=0)
    chosen = [versions[base].base] if base else []
    for number in range(base + 1, target + 1):
        steps = versions[number].steps if number in versions else []
        if not steps:
            raise IncompleteBatch(f"{store.directory}: the files of version {number} of the state are missing")
        chosen.extend(steps)
    for name in chosen:
        yield from _with_companions(listing, store, name, names, read)


@dataclass
class _Version:
    """A version of a store. `base` is the name of a whole state, or "" without a trustworthy one.

    `steps` are the deltas that lead to it.
    """

    base: str
    steps: list[str]


def _versions(names: set[str], target: int, store: _Store, committed: _CommittedIds) -> dict[int, _Version]:
    """Return the versions up to `target`. If the commit names the unique IDs, files of failed attempts are left out.

    If the commit was deleted, all steps are kept, because Spark follows the IDs and ignores other steps. A base is then
    used only if it is the version's only attempt: another attempt's base would cut off the true lineage.
    """
    found: dict[int, list[re.Match[str]]] = defaultdict(list)
    for name in sorted(names):
        match = _VERSIONED.fullmatch(name)
        if match is not None and int(match["version"]) <= target:
            found[int(match["version"])].append(match)
    versions = {}
    for number, matches in found.items():
        attempts = {match["uid"] for match in matches}
        ids = committed.of(store, number) if attempts != {None} else None
        kept = [match for match in matches if ids is None or match["uid"] in ids]
        trusted = ids is not None or len(attempts) == 1
        base = next((match[0] for match in kept if trusted and match["kind"] in _BASES), "")
        versions[number] = _Version(base, [match[0] for match in kept if match["kind"] not in _BASES])
    return versions


def _with_companions(
    listing: Listing, store: _Store, name: str, names: set[str], read: ReadFile
) -> Iterator[BatchFile]:
    owner = Owner(VertexKind.STATEFUL, store.operator, store.partition)
    wanted = [name]
    if name.endswith(".zip"):
        wanted += _zip_contents(read(f"{store.directory}/{name}"))
    for each in wanted:
        path = f"{store.directory}/{each}"
        if each not in names:
            raise IncompleteBatch(f"{path} is missing")
        yield BatchFile(path, listing[path], owner, immutable=True)
        if each + _CHECKSUM in names:
            yield BatchFile(path + _CHECKSUM, listing[path + _CHECKSUM], owner)


def _zip_contents(content: bytes) -> list[str]:
    """Return the files outside of the zip to which it refers, as `SSTs/<name>` and `logs/<name>`."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = archive.read("metadata").decode()
    except (zipfile.BadZipFile, KeyError) as error:
        raise IncompleteBatch(f"a RocksDB snapshot cannot be read: {error}") from error
    metadata = json.loads(text.partition("\n")[2])
    return [
        *(f"SSTs/{file['dfsSstFileName']}" for file in metadata.get("sstFiles") or ()),
        *(f"logs/{file['dfsLogFileName']}" for file in metadata.get("logFiles") or ()),
    ]


# --- operator state of foreachBatch functions ------------------------------------------------------------------------


def _operator_state(listing: Listing, batch: int) -> Iterator[BatchFile]:
    """Yield each function's newest version at or below the batch. A batch that changed nothing has no version.

    The version of a batch is on disk before its commit is (state/batch_function.py).
    """
    newest: dict[str, int] = {}
    for path in listing:
        parts = path.split("/")
        if parts[0] == "operators" and len(parts) == 3 and parts[2].isdigit() and int(parts[2]) <= batch:
            newest[parts[1]] = max(int(parts[2]), newest.get(parts[1], 0))
    for name, version in newest.items():
        path = f"operators/{name}/{version}"
        yield BatchFile(path, _size(listing, path), SINK)


# --- file sink -------------------------------------------------------------------------------------------------------


def _sink_log(listing: Listing, batch: int) -> Iterator[BatchFile]:
    """Yield the sink's log as of the batch: the newest compacted file at or below it, and all files after that one.

    A compacted file above the batch contains all earlier entries without their batches, and Spark soon deletes the
    earlier files. Then only the log as of a later batch can be read.
    """
    prefix = f"{SINK_PREFIX}_spark_metadata/"
    names = {path.removeprefix(prefix) for path in listing if path.startswith(prefix)}
    if not names:
        return
    chosen = entries_up_to(names, batch)
    if chosen is None:
        raise IncompleteBatch(f"the file sink's log lacks entries of batches up to {batch}")
    for name in chosen:
        yield _log_file(listing, prefix + name, SINK)


def entries_up_to(names: Collection[str], last: int) -> list[str] | None:
    """Return the files of a compacted log that hold exactly the entries 0 to `last`, or None if some are missing."""
    base = max((number for number in _compacts(names) if number <= last), default=-1)
    chosen = [f"{base}{_COMPACTED}"] if base >= 0 else []
    chosen += [str(number) for number in range(base + 1, last + 1)]
    return chosen if all(name in names for name in chosen) else None
