"""The results of checking a savepoint or Spark's checkpoint locations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checkpointing.model.messages import AfterRestore
from monitoring.engine.fields import Fields
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import refusal_in
from monitoring.reasons.savepoints import SavepointReason


@dataclass(frozen=True)
class SavepointValidation:
    """The result of the job manager's check of a savepoint's manifest and of all its files."""

    valid: bool
    reason: Reason | str
    checkpoint_id: int | None
    job_name: str
    entry_class: str
    state_size: int | None
    completed_at: datetime | None
    missing: bool = False  # there is no snapshot at the path
    # (query, sink) of the queries that write the rows of later batches a second time after a restore.
    written_again: tuple[tuple[str, str], ...] = ()

    @property
    def fault(self) -> Reason | str:
        """The reason why the savepoint is invalid, "" if it is valid."""
        return "" if self.valid else self.reason or SavepointReason.INVALID()

    @property
    def problem(self) -> str:
        return str(self.fault)

    @classmethod
    def parse(cls, fields: Fields) -> SavepointValidation:
        return cls(
            valid=fields.flag("valid"),
            reason=fields.optional_text("reason"),
            checkpoint_id=fields.amount("checkpointId"),
            job_name=fields.optional_text("jobName"),
            entry_class=fields.optional_text("entryClass"),
            state_size=fields.amount("stateSize"),
            completed_at=fields.optional_moment("completedTimestamp"),
            missing=fields.flag("missing", default=False),
            written_again=_written_again(fields),
        )


def _written_again(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Return (query, sink) for the queries that write rows again, none from an older job manager."""
    queries = fields.children("queries") if fields.raw.get("queries") else ()
    again = (query for query in queries if query.optional_text("after-restore") == AfterRestore.WRITTEN_AGAIN.value)
    return tuple((query.text("name"), query.text("sink").removeprefix("Sink: ")) for query in again)


@dataclass(frozen=True)
class FoundCheckpoint:
    """The job manager's result for a checkpoint location that Spark wrote. An invalid one has only a reason.

    `query` is the name in the request, "" for the only query of a program. The batch `begun_batch` was started but not
    committed, and runs again. `operators` are the stateful operators with their numbers of partitions. `store` is the
    state store, "" without state.
    """

    query: str
    location: str
    valid: bool
    reason: Reason | str
    query_id: str = ""
    batch: int | None = None
    batch_at: datetime | None = None
    begun_batch: int | None = None
    sources: int | None = None
    operators: tuple[tuple[str, int], ...] = ()
    store: str = ""
    formats: tuple[tuple[str, str], ...] = ()
    size: int | None = None

    @classmethod
    def parse(cls, fields: Fields) -> FoundCheckpoint:
        query, location = fields.optional_text("query"), fields.text("location")
        if not fields.flag("valid"):
            reason = refusal_in(fields.raw.get("refusal")) or fields.optional_text("reason")
            return cls(query, location, valid=False, reason=reason)
        formats = fields.child("formats")
        return cls(
            query=query,
            location=location,
            valid=True,
            reason="",
            query_id=fields.text("queryId"),
            batch=fields.whole("batch"),
            batch_at=fields.optional_moment("batchTimestamp"),
            begun_batch=fields.amount("begunBatch"),
            sources=fields.amount("sources"),
            operators=tuple(
                (each.optional_text("name"), each.whole("partitions")) for each in fields.children("operators")
            ),
            store=fields.optional_text("stateStore"),
            formats=tuple((log, formats.text(log)) for log in ("offsets", "commits")),
            size=fields.amount("size"),
        )
