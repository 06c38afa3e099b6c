"""Operator state for sources that are written in Python. It is stored inside the source's offset.

Spark creates a new reader for every run and runs its `read` in other processes, so data in a reader is lost. Its offset
is not lost: it is in `offsets/N` before batch N runs, is part of every snapshot of N, and is passed to the next batch
as its start. So state inside the offset exactly matches the input that was read.
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
    """The position of a source, and the state that belongs to it."""

    position: dict[str, Any]
    state: OperatorStateContext

    def to_plain(self) -> dict[str, Any]:
        return {_POSITION: json_copy(self.position, "position"), _STATE: to_plain(self.state.stores)}

    @staticmethod
    def from_plain(offset: dict[str, Any]) -> SourceOffset:
        """Return the offset as it was recorded.

        Raise OperatorStateUnusable for one of a source without operator state.
        """
        if set(offset) != {_POSITION, _STATE}:
            raise OperatorStateUnusable(
                f"the offset {json.dumps(offset)[:80]} was not written by a source with operator state"
            )
        return SourceOffset(offset[_POSITION], OperatorStateContext(from_plain(offset[_STATE], "the source's offset")))


class SourceInputLost(Exception):
    """A Python source raises this if it cannot read its recorded input again. The job then fails without a restart."""


class OperatorStateReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is not typed here
    """The base class of readers that `DataSource.streamReader` returns. `parallelism` is its number of subtasks.

    Keep the state small: Spark writes the whole offset once per batch and repeats it in its progress reports.
    """

    parallelism: int = 1

    @abstractmethod
    def initial_position(self) -> dict[str, Any]:
        """Return the position at which a query without an offset begins."""

    @abstractmethod
    def latest_position(self, start: SourceOffset, limit: Any) -> dict[str, Any]:
        """Return how far the next batch may read, at most `limit` (a Spark ReadLimit) from `start`.

        The content of `start.state` after the call is the state at the end of that batch. Spark may call the method
        again with the same start before a batch runs. So the result must not depend on anything else that changes
        between calls.
        """

    @abstractmethod
    def partitions_between(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        """Return the input of the batch from `start` to `end`, both as recorded.

        It is the same when the batch runs again.
        """

    def committed(self, end: SourceOffset) -> None:
        """Handle that all input up to `end` is in the sink."""

    # --- Spark's side ---

    _initial: dict[str, Any] | None = None
    _restored_from: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        stores = empty_stores(checked_parallelism(self.parallelism))
        self._initial = SourceOffset(self.initial_position(), OperatorStateContext(stores)).to_plain()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """Return `start` itself if neither the position nor the state has changed, so that there is no batch."""
        offset = self._begin(start)
        before = offset.to_plain()
        after = SourceOffset(self.latest_position(offset, limit), offset.state).to_plain()
        return start if after == before else after

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.partitions_between(SourceOffset.from_plain(start), SourceOffset.from_plain(end))

    def commit(self, end: dict[str, Any]) -> None:
        self.committed(SourceOffset.from_plain(end))

    def _begin(self, start: dict[str, Any]) -> SourceOffset:
        """Return the start of a batch.

        The first start of a run comes from an earlier run, unless it is the initial one.
        """
        if self._restored_from is None:
            self._restored_from = {} if start == self._initial else start
        offset = SourceOffset.from_plain(start)
        if start != self._restored_from:
            return offset
        stores = restored(offset.state.stores, checked_parallelism(self.parallelism))
        return SourceOffset(offset.position, OperatorStateContext(stores, is_restored=True))
