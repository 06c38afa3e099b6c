"""What was found where a savepoint lies."""

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
    """What our job manager found when it checked a savepoint's manifest and every file of it."""

    valid: bool
    reason: Reason | str
    checkpoint_id: int | None
    job_name: str
    entry_class: str
    state_size: int | None
    completed_at: datetime | None
    missing: bool = False  # there is no snapshot at the path
    # Queries that write the rows of batches after it a second time once it is restored, and what they write to.
    written_again: tuple[tuple[str, str], ...] = ()

    @property
    def fault(self) -> Reason | str:
        """What is wrong with it; "" when it is valid."""
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
    """Older job managers do not say it."""
    queries = fields.children("queries") if fields.raw.get("queries") else ()
    again = (query for query in queries if query.optional_text("after-restore") == AfterRestore.WRITTEN_AGAIN.value)
    return tuple((query.text("name"), query.text("sink").removeprefix("Sink: ")) for query in again)


@dataclass(frozen=True)
class FoundCheckpoint:
    """What our job manager found at a checkpoint location that Spark wrote. Only a `valid` one has more than a reason.

    `query` is as it was sent, "" for a program's only one. `begun_batch` was begun and not committed, and runs again.
    `operators` are the stateful ones, with their number of partitions. `store` is "" without state.
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
