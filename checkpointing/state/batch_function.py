"""Operator state for a foreachBatch function: one version per batch, written before the batch is committed.

    counts.writeStream.foreachBatch(with_operator_state(write, name="writer"))

    def write(frame, batch_id, context):
        offsets = context.list_state("offsets")

The version of batch N is the file `operators/<name>/<N>` in the query's checkpointLocation. Spark writes `commits/N`
only after the function returned, so each commit has its version. A batch that runs again starts from the version before
it and replaces its own. A batch that changed nothing writes nothing: the newest version at or below N counts.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from checkpointing.spark_internals import active_stream
from checkpointing.state.operator_state import (
    OperatorStateContext,
    OperatorStateStore,
    checked_parallelism,
    decode,
    empty_stores,
    encode,
    restored,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

DIRECTORY = "operators"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

StatefulFunction = Callable[["DataFrame", int, OperatorStateContext], object]


class NotInAStreamingQuery(RuntimeError):
    """The function was called outside of a streaming query, so there is no batch whose state it could keep."""


def with_operator_state(
    function: StatefulFunction, *, name: str = "sink", parallelism: int = 1
) -> Callable[[DataFrame, int], None]:
    """Return `function(frame, batch_id, context)` for `foreachBatch`. Raise ValueError on a bad name or parallelism.

    `name` distinguishes functions of one query, and a restore finds their state by it. So create the function when the
    program is called, not later. `parallelism` is the number of subtasks that it represents; it may differ in each run.
    """
    return BatchFunction(function, name, parallelism)


# The names of the functions that the program in this process has created.
_declared: set[str] = set()


def name_of_holder(path: str) -> str | None:
    """Return the name of the function whose state a file of a checkpointLocation contains, or None for another file."""
    parts = path.split("/")
    return parts[1] if parts[0] == DIRECTORY and len(parts) == 3 else None


def has_undeclared_function(path: str) -> bool:
    """Return whether a file has the state of a function that the program, after its call, has not created."""
    name = name_of_holder(path)
    return name is not None and name not in _declared


@dataclass(frozen=True)
class RunningBatch:
    """The query that calls. `run` identifies one start of it; `retain` is Spark's minBatchesToRetain."""

    location: Path
    run: str
    retain: int


@dataclass(frozen=True)
class _Version:
    """The state after `batch`. `content` is its form in a file, b"" without a file."""

    run: str
    batch: int
    stores: tuple[OperatorStateStore, ...]
    content: bytes


class BatchFunction:
    """A function for foreachBatch. Spark calls it from one thread at a time.

    The lock is needed because a call may still run after its query has ended and the next one has started.
    """

    def __init__(self, function: StatefulFunction, name: str, parallelism: int) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"name: 1 to 64 letters, digits, '_' or '-' are expected, not {name!r}")
        self._function = function
        self._name = name
        self._parallelism = checked_parallelism(parallelism)
        self._last: _Version | None = None
        self._lock = threading.Lock()
        _declared.add(name)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self._lock:
            query = running_batch(frame)
            _claim(query, self._name, self)
            files = OperatorStateFiles(query.location, self._name)
            last, self._last = self._last, None
            context, written = self._state_before(files, query.run, batch_id, last)
            self._function(frame, batch_id, context)
            content = encode(context.stores)
            files.write(batch_id, content, written)
            files.retire(batch_id - query.retain)
            self._last = _Version(query.run, batch_id, context.stores, content)

    def _state_before(
        self, files: OperatorStateFiles, run: str, batch: int, last: _Version | None
    ) -> tuple[OperatorStateContext, bytes]:
        """Return the state before the batch, and the content of its file."""
        if last is not None and (last.run, last.batch) == (run, batch - 1):
            return OperatorStateContext(last.stores), last.content
        content = files.read_before(batch)
        if not content:
            return OperatorStateContext(empty_stores(self._parallelism)), content
        stores = decode(content, str(files.directory))
        if len(stores) != self._parallelism:
            log.info("operator state %r: from %d subtasks to %d", self._name, len(stores), self._parallelism)
        return OperatorStateContext(restored(stores, self._parallelism), is_restored=True), content


class OperatorStateFiles:
    """The versions of one function's state in a checkpointLocation."""

    def __init__(self, location: Path, name: str) -> None:
        from checkpointing.storage.files import LocalFiles  # not at the top: Python workers do not need storage

        self.directory = location / DIRECTORY / name
        self._files = LocalFiles()

    def versions(self) -> list[int]:
        """Return the versions of the state that are stored, in ascending order."""
        return sorted(int(name) for name in self._files.names(str(self.directory)) if name.isdigit())

    def read_before(self, batch: int) -> bytes:
        """Return the newest version below `batch`, or b"" if there is none."""
        newest = max((version for version in self.versions() if version < batch), default=None)
        return b"" if newest is None else (self.directory / str(newest)).read_bytes()

    def write(self, batch: int, content: bytes, before: bytes) -> None:
        """Write a version durably. Write nothing if `before`, the version below it, is equal."""
        path = self.directory / str(batch)
        if content == before and not path.exists():
            return
        self._files.make_directory(str(self.directory))
        self._files.write_durably(str(path), content)

    def retire(self, oldest: int) -> None:
        """Remove the versions that no batch from `oldest` on needs."""
        for version in [version for version in self.versions() if version <= oldest][:-1]:
            (self.directory / str(version)).unlink(missing_ok=True)


_claims: dict[Path, tuple[str, BatchFunction]] = {}


def _claim(query: RunningBatch, name: str, function: BatchFunction) -> None:
    """Raise ValueError for two functions of one query with one name, which would overwrite each other's state."""
    key = query.location / name
    run, owner = _claims.get(key, (query.run, function))
    if run == query.run and owner is not function:
        raise ValueError(
            f"name: two functions of the query use the name {name!r} for operator state; give each its own name"
        )
    _claims[key] = (query.run, function)


def running_batch(frame: Any) -> RunningBatch:
    """Return the query of the batch `frame`. Raise NotInAStreamingQuery."""
    session = frame.sparkSession
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        raise NotInAStreamingQuery("operator state exists only in a function that foreachBatch calls")
    stream = active_stream(session, query_id)
    if stream is None:
        raise NotInAStreamingQuery(f"the query {query_id} has ended")
    retain = int(session.conf.get("spark.sql.streaming.minBatchesToRetain"))
    return RunningBatch(_local(str(stream.resolvedCheckpointRoot())), str(stream.runId()), retain)


def _local(location: str) -> Path:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise ValueError(f"operator state needs a checkpointLocation on a local file system, not {location}")
    return Path(unquote(parts.path))
