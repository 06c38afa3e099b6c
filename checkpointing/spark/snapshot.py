"""One query's part of a checkpoint: link the files of a batch aside at its end, then make them durable at leisure.

Linking takes milliseconds, so that Spark's own cleaning cannot race it; hashing and placing work on the links while the
query goes on. Links are safe because Spark writes its files under new names and renames, never in place.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.messages import StateFile, TriggerCheckpoint, Vertex
from checkpointing.spark.file_store import FileHashes, list_files, place, sync
from checkpointing.spark.layout import (
    SINK,
    SINK_PREFIX,
    BatchFile,
    IncompleteBatch,
    committed_batches,
    select_batch,
)
from checkpointing.spark.plan import QueryPlan

# Smaller files are kept privately: the pool's bookkeeping costs more than they do, and only here is equal content
# likely, where a file could be dropped from the pool for one checkpoint just when another one takes it up.
LEAST_SHARED_BYTES = 4096
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
        return self.directory / _file_name(file.path)


def _file_name(path: str) -> Path:
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
        target = directory / _file_name(file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(files.path_of(file.path), target)
        if target.stat().st_size != file.size:
            raise IncompleteBatch(f"{file.path} has {target.stat().st_size} bytes, {file.size} were listed")
    if files.sink_path is not None:
        note = directory / _file_name(SINK_LOCATION)
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


@dataclass(frozen=True)
class DurableSubtask:
    """A subtask whose files are all in checkpoint storage. `new_bytes` were not there before this checkpoint."""

    vertex: Vertex
    subtask: int
    files: tuple[StateFile, ...]
    new_bytes: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class PoolLedger:
    """Which pool files a checkpoint brought that the job manager does not know of yet: they go when it is aborted.

    Once acknowledged, a file is the job manager's: only there it is known whether the checkpoint was completed.
    """

    def __init__(self) -> None:
        self._brought: dict[Path, int] = {}

    def used(self, path: Path, checkpoint_id: int, *, is_new: bool) -> None:
        """A file that another checkpoint uses too belongs to the pool."""
        if is_new:
            self._brought[path] = checkpoint_id
        elif self._brought.get(path) != checkpoint_id:
            self._brought.pop(path, None)

    def acknowledged(self, locations: Sequence[Path]) -> None:
        for path in locations:
            self._brought.pop(path, None)

    def aborted(self, checkpoint_id: int) -> list[Path]:
        """The files to remove."""
        gone = [path for path, owner in self._brought.items() if owner == checkpoint_id]
        self.acknowledged(gone)
        return gone


@dataclass
class SnapshotWriter:
    """Puts staged files into one checkpoint's place."""

    trigger: TriggerCheckpoint
    hashes: FileHashes
    pool: PoolLedger

    def by_subtask(self, staged: StagedBatch) -> dict[tuple[str, int], tuple[BatchFile, ...]]:
        """The files of every subtask of the query, those without any included; IncompleteBatch on a stray file."""
        plan = staged.files.plan
        grouped: dict[tuple[str, int], list[BatchFile]] = defaultdict(list)
        for file in staged.selected:
            vertex = plan.vertex(file.owner)
            if vertex is None or file.owner.subtask >= vertex.parallelism:
                raise IncompleteBatch(f"{file.path} belongs to no operator of query {plan.query!r} that is known")
            grouped[vertex.id, file.owner.subtask].append(file)
        return {(v.id, i): tuple(grouped[v.id, i]) for v in plan.vertices for i in range(v.parallelism)}

    def write(self, staged: StagedBatch, vertex: Vertex, subtask: int, files: tuple[BatchFile, ...]) -> DurableSubtask:
        """Durable when this returns; OSError when storage fails."""
        written: list[StateFile] = []
        new_bytes = 0
        for file in files:
            state_file, is_new = self._write_one(staged, file)
            written.append(state_file)
            new_bytes += file.size if is_new else 0
        for directory in {self._absolute(file.location).parent for file in written}:
            sync(directory)
        return DurableSubtask(vertex, subtask, tuple(written), new_bytes)

    def _write_one(self, staged: StagedBatch, file: BatchFile) -> tuple[StateFile, bool]:
        link = staged.link_of(file)
        sha256 = self.hashes.of(link)
        pool = self.trigger.shared_directory
        shared = pool is not None and not self.trigger.full and file.immutable and file.size >= LEAST_SHARED_BYTES
        if shared:
            target = Path(str(pool)) / sha256
        else:
            target = Path(self.trigger.directory) / _safe(staged.files.query) / _file_name(file.path)
        existed = target.exists()
        place(link, target)
        if target.stat().st_size != file.size:
            raise OSError(errno.EIO, f"has {target.stat().st_size} bytes instead of {file.size}", str(target))
        if shared:
            self.pool.used(target, self.trigger.checkpoint_id, is_new=not existed)
        location = str(target.relative_to(self._base()))
        return StateFile(file.path, location, file.size, sha256, shared), not existed

    def _base(self) -> Path:
        directory = Path(self.trigger.directory)
        return directory if self.trigger.kind.is_savepoint else directory.parent

    def _absolute(self, location: str) -> Path:
        return self._base() / location


def _safe(query: str) -> str:
    """A query's name as a directory's: what else is in it becomes `_`."""
    return re.sub(r"[^\w.-]", "_", query).lstrip(".") or "_"
