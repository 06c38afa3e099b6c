"""What was found where a savepoint lies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.engine.fields import Fields


@dataclass(frozen=True)
class SavepointValidation:
    """What our job manager found when it checked a savepoint's manifest and every file of it."""

    valid: bool
    reason: str
    checkpoint_id: int | None
    job_name: str
    entry_class: str
    state_size: int | None
    completed_at: datetime | None
    missing: bool = False  # there is no snapshot at the path

    @property
    def problem(self) -> str:
        """What is wrong with it; "" when it is valid."""
        return "" if self.valid else self.reason or "the engine calls it invalid, without a reason"

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
        )
