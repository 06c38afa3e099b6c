"""Links the files of one batch of a running query into another directory at the batch's end.

Linking takes milliseconds, so Spark's own cleaning does not interfere, and the links can be processed without haste.
Links are safe because Spark writes its files under new names and renames them, never in place. A large file is linked
with Hadoop's checksums of it, if there are any: they identify its content without reading it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from checkpointing.checkpoint_location.checksums import is_identified_by_sums, sums_path
from checkpointing.checkpoint_location.layout import (
    SINK,
    SINK_PREFIX,
    BatchFile,
    IncompleteBatch,
    committed_batches,
    select_batch,
    source_positions,
)
from checkpointing.model.messages import Channel
from checkpointing.spark.query_plan import QueryPlan

SINK_LOCATION = f"{SINK_PREFIX}location"
_SINK_LOG = "_spark_metadata"


class SinkLog(Protocol):
    """The log of Spark's file sink in the output directory that `str` returns (see file_sink.py). Raises OSError."""

    def log_names(self) -> set[str]:
        """Return the names of the log's files."""
        ...

    def size_of(self, name: str) -> int:
        """Return the size of a file. Raise FileNotFoundError if it is gone."""
        ...

    def copy_of(self, name: str) -> Path:
        """Return a local copy of a file. Raise FileNotFoundError if it is gone."""
        ...


@dataclass(frozen=True)
class QueryFiles:
    """The files of a running query. `sink_log` is that of Spark's file sink, None for any other sink.

    `inputs`: the channels that it reads. `is_continuous`: its batches are the epochs of a continuous trigger.
    """

    plan: QueryPlan
    location: Path
    sink_log: SinkLog | None
    inputs: tuple[Channel, ...] = ()
    is_continuous: bool = False

    @property
    def query(self) -> str:
        return self.plan.query

    def path_of(self, name: str) -> Path:
        if self.sink_log is not None and name.startswith(SINK_PREFIX):
            return self.sink_log.copy_of(name.rpartition("/")[2])
        return self.location / name

    def read(self, name: str) -> bytes:
        return self.path_of(name).read_bytes()

    def last_commit(self) -> int | None:
        """Return the newest batch whose files are all on disk, or None."""
        return max(_numbers(self.location / "commits"), default=None)

    def next_boundary(self) -> int | None:
        """Return the batch whose end is the next boundary, or the last one if no batch runs.

        Return None if no batch was started.

        The query's output so far belongs to this batch or to earlier ones, because a batch's offsets are written before
        it runs. In a continuous query an epoch always runs, and nothing is known about it before it ends.
        """
        if self.is_continuous:
            last = self.last_commit()
            return 0 if last is None else last + 1
        return max(_numbers(self.location / "offsets"), default=None)

    def has_committed(self, batch: int) -> bool:
        """Return whether the batch is committed.

        Check single files; list the directory only if Spark may have removed them.
        """
        if (self.location / "commits" / str(batch)).exists():
            return True
        if (self.location / "offsets" / str(batch)).exists():
            return False
        last = self.last_commit()
        return last is not None and last >= batch


def _numbers(directory: Path) -> list[int]:
    try:
        return committed_batches(entry.name for entry in os.scandir(directory))
    except FileNotFoundError:
        return []


@dataclass(frozen=True)
class StagedBatch:
    """The files of one batch as links under `directory`."""

    files: QueryFiles
    batch: int
    selected: tuple[BatchFile, ...]
    directory: Path

    def link_of(self, file: BatchFile) -> Path:
        return self.directory / file_name(file.path)

    def channels(self) -> tuple[Channel, ...]:
        """Return the query's inputs, with the positions that it had read at the end of the batch."""
        if not self.files.inputs:
            return ()
        positions = source_positions((self.directory / "offsets" / str(self.batch)).read_bytes())
        return tuple(
            replace(channel, position=positions.get(channel.source) if channel.source is not None else None)
            for channel in self.files.inputs
        )


def file_name(path: str) -> Path:
    """Return the path of a file's link. Files of a sink are in a separate directory."""
    return Path("sink", path.removeprefix(SINK_PREFIX)) if path.startswith(SINK_PREFIX) else Path(path)


def stage(files: QueryFiles, batch: int, directory: Path) -> StagedBatch:
    """Link the files of `batch` into `directory`, which must not exist. Remove the directory after a failure.

    Raise IncompleteBatch or FileNotFoundError if Spark's maintenance changed files during the listing, or removed files
    that only this batch needs. A retry or another batch may then succeed. Raise another OSError if linking fails.
    """
    try:
        return _stage(files, batch, directory)
    except (OSError, IncompleteBatch, ValueError):
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _stage(files: QueryFiles, batch: int, directory: Path) -> StagedBatch:
    selected = list(select_batch(_Listing(files), batch, files.read))
    if files.sink_log is not None:
        location = str(files.sink_log).encode()
        selected.append(BatchFile(SINK_LOCATION, len(location), SINK, content=location))
    made: set[Path] = set()
    for file in selected:
        target = directory / file_name(file.path)
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        if file.content is not None:
            target.write_bytes(file.content)
            continue
        _link_or_copy(files.path_of(file.path), target)
        if target.stat().st_size != file.size:
            raise IncompleteBatch(f"{file.path} has {target.stat().st_size} bytes instead of {file.size}")
        if is_identified_by_sums(file.path, file.size):
            with contextlib.suppress(FileNotFoundError):
                _link_or_copy(sums_path(files.path_of(file.path)), sums_path(target))
    return StagedBatch(files, batch, tuple(selected), directory)


class _Listing(Mapping[str, int]):
    """A query's current files. Sizes are read on access, which raises FileNotFoundError if the file is gone."""

    def __init__(self, files: QueryFiles) -> None:
        self._files = files
        self._names = set(_names_below(files.location))
        if files.sink_log is not None:
            self._names.update(f"{SINK_PREFIX}{_SINK_LOG}/{name}" for name in files.sink_log.log_names())

    def __getitem__(self, name: str) -> int:
        if name not in self._names:
            raise KeyError(name)
        if self._files.sink_log is not None and name.startswith(SINK_PREFIX):
            return self._files.sink_log.size_of(name.rpartition("/")[2])
        return self._files.path_of(name).stat().st_size

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _names_below(root: Path) -> Iterator[str]:
    """Yield relative paths of the files below `root`. Skip a directory that is removed meanwhile."""
    pending = [""]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, directory)))  # noqa: PTH118 - tens of thousands of them
        except FileNotFoundError:
            continue
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)  # a file sink's output may be on another file system
