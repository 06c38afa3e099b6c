"""Operator state for sources that are written in Python: it travels inside the source's offset.

Spark makes a new reader for every run and runs its `read` in other processes, so that what a reader keeps in itself is
lost. Its offset is not: it lies in `offsets/N` before batch N runs, is part of every snapshot of N, and is handed back
as the start of the next batch. So state that is part of the offset is exactly as old as the input that was read.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from checkpointing.state.operator_state import (
    OperatorStateContext,
    OperatorStateUnusable,
    checked_parallelism,
    empty_stores,
    from_plain,
    restored,
    to_plain,
)
from checkpointing.state.values import json_copy

_POSITION, _STATE = "position", "operator_state"


@dataclass(frozen=True)
class SourceOffset:
    """Where a source is, and the state that goes with it."""

    position: dict[str, Any]
    state: OperatorStateContext

    def to_plain(self) -> dict[str, Any]:
        return {_POSITION: json_copy(self.position, "position"), _STATE: to_plain(self.state.stores)}

    @staticmethod
    def from_plain(offset: dict[str, Any]) -> SourceOffset:
        """As it was recorded; OperatorStateUnusable for an offset of a source without operator state."""
        if set(offset) != {_POSITION, _STATE}:
            raise OperatorStateUnusable(f"the offset {json.dumps(offset)[:80]} is not of a source with operator state")
        return SourceOffset(offset[_POSITION], OperatorStateContext(from_plain(offset[_STATE], "the source's offset")))


class SourceInputLost(Exception):
    """For a Python source to raise when it cannot read again what its offsets name: the job fails for good, at once."""


class OperatorStateReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is not typed here
    """Return one from `DataSource.streamReader`. `parallelism` is the number of subtasks whose state it keeps.

    Keep the state small: Spark writes the whole offset once a batch and repeats it in its progress reports.
    """

    parallelism: int = 1

    @abstractmethod
    def initial_position(self) -> dict[str, Any]:
        """Where a query begins that has no offset yet."""

    @abstractmethod
    def latest_position(self, start: SourceOffset, limit: Any) -> dict[str, Any]:
        """How far the next batch may read, at most `limit` (a Spark ReadLimit) from `start`.

        What it leaves in `start.state` is the state at the end of that batch. May be called again with the same start
        before a batch comes of it, so it may depend on nothing else that changes with the call.
        """

    @abstractmethod
    def partitions_between(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        """The input of the batch from `start` to `end`, both as recorded: the same when the batch is run again."""

    def committed(self, end: SourceOffset) -> None:
        """Everything up to `end` is in the sink."""

    # --- Spark's side ---

    _initial: dict[str, Any] | None = None
    _restored_from: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        stores = empty_stores(checked_parallelism(self.parallelism))
        self._initial = SourceOffset(self.initial_position(), OperatorStateContext(stores)).to_plain()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """`start` itself when neither the position nor the state has changed: then there is no batch."""
        offset = self._begin(start)
        before = offset.to_plain()
        after = SourceOffset(self.latest_position(offset, limit), offset.state).to_plain()
        return start if after == before else after

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.partitions_between(SourceOffset.from_plain(start), SourceOffset.from_plain(end))

    def commit(self, end: dict[str, Any]) -> None:
        self.committed(SourceOffset.from_plain(end))

    def _begin(self, start: dict[str, Any]) -> SourceOffset:
        """The first start of a run is what an earlier run left, unless it is the initial one; later ones are ours."""
        if self._restored_from is None:
            self._restored_from = {} if start == self._initial else start
        offset = SourceOffset.from_plain(start)
        if start != self._restored_from:
            return offset
        stores = restored(offset.state.stores, checked_parallelism(self.parallelism))
        return SourceOffset(offset.position, OperatorStateContext(stores, is_restored=True))
