"""The files of one batch of a running query, linked aside at its end.

Linking takes milliseconds, so that Spark's own cleaning cannot race it; whoever works on the links has all the time it
needs. Links are safe because Spark writes its files under new names and renames, never in place.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from checkpointing.spark.file_store import list_files
from checkpointing.spark.layout import (
    SINK,
    SINK_PREFIX,
    BatchFile,
    IncompleteBatch,
    committed_batches,
    select_batch,
)
from checkpointing.spark.plan import QueryPlan

SINK_LOCATION = f"{SINK_PREFIX}location"
_STAGING_TRIES = 5


@dataclass(frozen=True)
class QueryFiles:
    """Where a running query keeps its files. `sink_path` is a file sink's local output directory, else None."""

    plan: QueryPlan
    location: Path
    sink_path: Path | None

    @property
    def query(self) -> str:
        return self.plan.query

    def path_of(self, name: str) -> Path:
        if name.startswith(SINK_PREFIX):
            return Path(str(self.sink_path)) / name.removeprefix(SINK_PREFIX)
        return self.location / name

    def listing(self) -> dict[str, int]:
        files = list_files(self.location)
        if self.sink_path is not None:
            log = list_files(self.sink_path / "_spark_metadata")
            files.update({f"{SINK_PREFIX}_spark_metadata/{name}": size for name, size in log.items()})
        return files

    def last_commit(self) -> int | None:
        """The newest batch of which everything is on disk."""
        return max(_numbers(self.location / "commits"), default=None)

    def batch_in_flight(self) -> bool:
        """Offsets are read first: a commit that lands in between makes the answer False, which is then true."""
        newest_offset = max(_numbers(self.location / "offsets"), default=-1)
        newest_commit = self.last_commit()
        return newest_offset > (-1 if newest_commit is None else newest_commit)


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


def file_name(path: str) -> Path:
    """A sink's files go beside the query's own."""
    return Path("sink", path.removeprefix(SINK_PREFIX)) if path.startswith(SINK_PREFIX) else Path(path)


def stage(files: QueryFiles, batch: int, directory: Path, pause: Callable[[], None]) -> StagedBatch:
    """Link the files of `batch` into `directory`, which must not exist. IncompleteBatch or OSError when that fails.

    `pause` is called before each new try: a listing can be overtaken by Spark's maintenance.
    """
    for _ in range(_STAGING_TRIES - 1):
        try:
            return _stage_once(files, batch, directory)
        except (FileNotFoundError, IncompleteBatch):
            shutil.rmtree(directory, ignore_errors=True)
            pause()
    return _stage_once(files, batch, directory)


def _stage_once(files: QueryFiles, batch: int, directory: Path) -> StagedBatch:
    selected = list(select_batch(files.listing(), batch, lambda path: files.path_of(path).read_bytes()))
    for file in selected:
        target = directory / file_name(file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(files.path_of(file.path), target)
        if target.stat().st_size != file.size:
            raise IncompleteBatch(f"{file.path} has {target.stat().st_size} bytes, {file.size} were listed")
    if files.sink_path is not None:
        note = directory / file_name(SINK_LOCATION)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(str(files.sink_path))
        selected.append(BatchFile(SINK_LOCATION, note.stat().st_size, SINK))
    return StagedBatch(files, batch, tuple(selected), directory)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)  # a file sink's output may lie on another file system
