"""One query of the job in this process: start it, see how it does, end it between two batches or at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.messages import ExceptionInfo
from checkpointing.spark import failure
from checkpointing.spark.plan import QueryPlan, Sink
from checkpointing.spark.staging import QueryFiles

_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


@dataclass(frozen=True)
class PlannedQuery:
    """A query ready to start: its writer has name and checkpointLocation set."""

    writer: Any
    plan: QueryPlan
    location: Path
    sink: Sink

    @property
    def name(self) -> str:
        return self.plan.query

    @property
    def files(self) -> QueryFiles:
        return QueryFiles(self.plan, self.location, _local_path(self.sink.path))


def _local_path(path: str | None) -> Path | None:
    """None for a path on another file system than this machine's: its log is not taken along."""
    if path is None:
        return None
    scheme, separator, rest = path.partition(":")
    if not separator or "/" in scheme:
        return Path(path)
    return Path(rest) if scheme == "file" else None


class RunningQuery:
    """Use from one thread. `start` may be called again after the query has ended."""

    def __init__(self, planned: PlannedQuery) -> None:
        self.planned = planned
        self.files = planned.files
        self._query: Any = None

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def spark_id(self) -> str:
        """The id that Spark keeps in the checkpointLocation: the same across restarts."""
        return str(self._query.id)

    def start(self) -> None:
        """Returns once Spark has accepted the query; the first batch may take as long as it likes."""
        self._query = self.planned.writer.start()

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def failure(self, timestamp: int) -> ExceptionInfo | None:
        """Why the query ended; None when it is active or ended by itself or on request."""
        found = self._query._jsq.exception()  # noqa: SLF001 - the Python side keeps the text only, not the causes
        return failure.of_query(self.name, found.get(), timestamp) if found.isDefined() else None

    def end_after_batch(self) -> None:
        """Let the batch in flight finish and commit, and start no other. See `has_ended`.

        Spark's own stop() interrupts the batch, whose output may then be in the sink without being committed. The
        stream's loop looks at its state between batches: this sets only that.
        """
        stream = self._query._jsq.streamingQuery()  # noqa: SLF001
        stream.state().set(_scala_object(self.planned.writer, _TERMINATED))

    def has_ended(self) -> bool:
        """After `end_after_batch`: True when no batch runs and none will. Wakes a loop that waits for its trigger."""
        stream = self._query._jsq.streamingQuery()  # noqa: SLF001
        if stream.queryExecutionThread().isAlive() and self._query.status["isTriggerActive"]:
            return False
        self._query.stop()
        return True

    def stop(self) -> None:
        """Interrupt whatever runs."""
        self._query.stop()


def _scala_object(writer: Any, name: str) -> Any:
    jvm = writer._spark._jvm  # noqa: SLF001
    return getattr(getattr(jvm, name), "MODULE$")
