"""Moves the batch numbers of a restored checkpointLocation forward: the state after batch N becomes the one after M.

Sinks that store batch numbers skip a batch whose number they know. After a restore to an older batch, Spark would use
such numbers again for other rows. M is above every number that was ever used, so Spark does not (decision 132).

A number is the name of a file: `offsets/N`, `commits/N`, and the versions N+1 and below of each state store. All of
them move by the same distance, so that they stay contiguous, which Spark checks. Two files contain numbers:

  V_<id>.changelog    state format 2: the versions since the last whole state ("lineage"), compressed, before the
      changes. Spark reads it only in the newest version's file, so only that file is rewritten
  offsets/M-1         does not exist if N is 0, but Spark needs it: it is written without a position of any source

If a store has no whole state yet, Spark starts from an empty version 0. A moved store needs an empty whole state. These
files have no batch numbers and stay unchanged: `sources/`, operator metadata and schemas (Spark takes the newest at or
below the batch), SST files, our operator state. A file sink's log is outside of the location.
"""

from __future__ import annotations

import io
import json
import re
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from checkpointing.checkpoint_location.checksums import sums_path, write_sums
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.spark_internals import COMPRESSION_CODEC, java_context, jvm_class, jvm_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark holds an array of all numbers between the least and the greatest of a log, and uses 32 bits for some.
GREATEST = 2**31 - 1
_STATE_FILE = re.compile(r"(?P<version>\d+)(?P<id>(?:_[0-9a-f-]{36})?)\.(?P<kind>zip|changelog|snapshot|delta)")
_WHOLE = ("zip", "snapshot")
_NO_POSITION = "-"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"
_END_OF_ROWS = (-1).to_bytes(4, "big", signed=True)
# The formats of the logs. None of them contains a batch number.
_KNOWN_LOGS = {"offsets": ("v1", "v2"), "commits": ("v1", "v2")}
_EMPTY_ROCKSDB = 'v1\n{"sstFiles":[],"logFiles":[],"numKeys":0}'


class FormatNotKnown(ValueError):
    """A file has a format that cannot be renumbered. The text names the file and the format."""


class StateFiles(Protocol):
    """Reads and writes Spark's compressed state files."""

    def write(self, path: Path, content: bytes) -> None: ...

    def replace_header(self, path: Path, change: Callable[[str, str], str]) -> None:
        """Replace the lineage of a changelog: `change` receives the format's version and the old lineage."""
        ...


class SparkStateFiles:
    """The state files of a running Spark, with the codec of the query's batches.

    The content passes through the JVM as a stream, because it may be larger than the memory.
    """

    def __init__(self, spark: SparkSession, codec: str) -> None:
        self._java = jvm_view(spark).java
        configuration = java_context(spark.sparkContext).conf()
        self._codec = jvm_class(spark, COMPRESSION_CODEC).createCodec(configuration, codec)

    def write(self, path: Path, content: bytes) -> None:
        with closing(self._output(path)) as target:
            target.write(bytearray(content))

    def replace_header(self, path: Path, change: Callable[[str, str], str]) -> None:
        java, fresh = self._java.io, path.with_name(f".{path.name}.tmp")
        file = java.FileInputStream(str(path))
        with closing(file), closing(java.DataInputStream(self._codec.compressedInputStream(file))) as source:
            version, lineage = source.readUTF(), source.readUTF()
            changed = change(version, lineage)
            with closing(java.DataOutputStream(self._output(fresh))) as target:
                target.writeUTF(version)
                target.writeUTF(changed)
                source.transferTo(target)
        fresh.rename(path)  # the old file may have been a link

    def _output(self, path: Path) -> Any:
        return self._codec.compressedOutputStream(self._java.io.FileOutputStream(str(path)))


def _state_files(spark: SparkSession, location: Path, batch: int) -> SparkStateFiles:
    """Return the state files of a location, with the codec that Spark stored with its batch.

    Raise OSError or ValueError.
    """
    settings = json.loads((location / "offsets" / str(batch)).read_text().splitlines()[1])["conf"]
    return SparkStateFiles(spark, str(settings.get(_CODEC, "lz4")))


def first_batch(numbers: BatchNumbers, interval: int) -> int:
    """Return the new number of the last restored batch of each query.

    Spark's file sink compacts its log every `interval` batches. Its log gets compacted files for this batch and for the
    batch one interval before. So this number ends an interval, and both numbers are in the range.
    """
    least = numbers.first + interval
    return least + -(least + 1) % interval


def renumber(spark: SparkSession, location: Path, batch: int, to: int) -> None:
    """Make batch `batch`, the last one of `location`, batch `to`. No query may use the location.

    Not atomic: after an error the location must be thrown away.

    Raises:
        FormatNotKnown: a file has a format that this version of Waymark cannot renumber.
        OSError, ValueError: a file cannot be read or written, or the number is not allowed.
    """
    if not batch < to < GREATEST:
        raise ValueError(
            f"batch {batch} cannot become batch {to}: a number from {batch + 1} to {GREATEST - 1} is allowed"
        )
    distance = to - batch
    _check_formats(location)
    for log in ("offsets", "commits"):
        for number in sorted((int(path.name) for path in (location / log).glob("[0-9]*")), reverse=True):
            _rename(location / log / str(number), str(number + distance))
    if batch == 0:
        _write_offsets_of_nothing(location / "offsets", to)
    stores = _stores(location / "state")
    if stores:
        files = _state_files(spark, location, to)
        for store in stores:
            _renumber_store(store, batch + 1, distance, files)


def _rename(path: Path, name: str) -> Path:
    """Rename a file together with its Hadoop checksum file."""
    target = path.with_name(name)
    if sums_path(path).exists():
        sums_path(path).rename(sums_path(target))
    return path.rename(target)


def _check_formats(location: Path) -> None:
    for log, known in _KNOWN_LOGS.items():
        for path in (location / log).glob("[0-9]*"):
            _check_known(path, path.read_text().partition("\n")[0], known)


def _check_known(path: Path, version: str, known: Sequence[str]) -> None:
    if version not in known:
        raise FormatNotKnown(
            f"{path} has format {version!r}, but only batches of format {' and '.join(known)} can be renumbered"
        )


def _write_offsets_of_nothing(log: Path, batch: int) -> None:
    path = log / str(batch)
    version, settings, *sources = path.read_text().splitlines()
    _check_known(path, version, ("v1",))  # version "v2" of the offsets file names the sources
    before = log / str(batch - 1)
    before.write_text("\n".join([version, settings, *[_NO_POSITION] * len(sources)]))
    write_sums(before)


# --- state stores ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StoreFile:
    path: Path
    version: int
    id: str
    kind: str

    def named(self, version: int) -> str:
        return f"{version}{self.id}.{self.kind}"


def _stores(state: Path) -> Collection[list[_StoreFile]]:
    """Return the versioned files of each store."""
    stores = defaultdict(list)
    for path in state.rglob("*"):
        match = _STATE_FILE.fullmatch(path.name)
        if match is not None and path.is_file():
            stores[path.parent].append(_StoreFile(path, int(match["version"]), match["id"], match["kind"]))
    return stores.values()


def _renumber_store(store: list[_StoreFile], version: int, distance: int, files: StateFiles) -> None:
    empty = None if any(file.kind in _WHOLE for file in store) else _write_empty(store[0], distance, files)
    for file in store:
        moved = _rename(file.path, file.named(file.version + distance))
        spark_sums = file.path.with_name(f"{file.path.name}.crc")
        if file.id and file.kind == "changelog" and file.version == version:
            for stale in (sums_path(moved), spark_sums, sums_path(spark_sums)):
                stale.unlink(missing_ok=True)
            files.replace_header(moved, partial(_moved_lineage, moved, distance, empty))
            write_sums(moved)
        elif spark_sums.exists():
            _rename(spark_sums, f"{moved.name}.crc")


def _moved_lineage(path: Path, distance: int, empty: str | None, version: str, lineage: str) -> str:
    """Return the lineage with moved versions.

    `empty` is the ID of the empty state before the first version, if there was no whole state.
    """
    _check_known(path, version, ("v3", "v4"))
    moved = [{**each, "version": each["version"] + distance} for each in json.loads(lineage)]
    if empty is not None:
        moved.insert(0, {"version": distance, "checkpointUniqueId": empty})
    return json.dumps(moved, separators=(",", ":"))


def _write_empty(example: _StoreFile, version: int, files: StateFiles) -> str:
    """Write an empty whole state into the store of `example`. Return its id."""
    id_ = str(uuid.uuid4())
    if example.kind == "delta":
        path = example.path.with_name(f"{version}.snapshot")
        files.write(path, _END_OF_ROWS)
    else:
        suffix = f"_{id_}" if example.id else ""
        path = example.path.with_name(f"{version}{suffix}.zip")
        path.write_bytes(_zip_of("metadata", _EMPTY_ROCKSDB))
    write_sums(path)
    return id_


def _zip_of(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, text)
    return buffer.getvalue()
