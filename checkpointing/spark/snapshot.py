"""One query's part of a checkpoint: staged files made durable in checkpoint storage at leisure, subtask by subtask."""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.messages import StateFile, TriggerCheckpoint, Vertex
from checkpointing.spark.file_store import FileHashes, place, sync
from checkpointing.spark.layout import BatchFile, IncompleteBatch
from checkpointing.spark.staging import StagedBatch, file_name

# Smaller files are kept privately: the pool's bookkeeping costs more than they do, and only here is equal content
# likely, where a file could be dropped from the pool for one checkpoint just when another one takes it up.
LEAST_SHARED_BYTES = 4096


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
            target = Path(self.trigger.directory) / _safe(staged.files.query) / file_name(file.path)
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
