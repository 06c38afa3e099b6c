"""One checkpoint of one operator, subtask by subtask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.engine.answers.checkpoints import TaskStats
from monitoring.engine.fields import Fields


@dataclass(frozen=True)
class SubtaskStats:
    """`acknowledged` false: pending or failed, and every figure is None."""

    index: int
    acknowledged: bool
    ack_at: datetime | None = None
    end_to_end_duration: int | None = None
    checkpointed_size: int | None = None
    state_size: int | None = None
    sync_duration: int | None = None
    async_duration: int | None = None
    alignment_duration: int | None = None
    start_delay: int | None = None
    processed_data: int | None = None
    persisted_data: int | None = None
    unaligned: bool | None = None
    aborted: bool | None = None

    @classmethod
    def parse(cls, fields: Fields) -> SubtaskStats:
        if fields.optional_text("status") != "completed":
            return cls(fields.small("index"), acknowledged=False)
        durations, alignment = fields.child("checkpoint"), fields.child("alignment")
        return cls(
            index=fields.small("index"),
            acknowledged=True,
            ack_at=fields.optional_moment("ack_timestamp"),
            end_to_end_duration=fields.amount("end_to_end_duration"),
            checkpointed_size=fields.amount("checkpointed_size"),
            state_size=fields.amount("state_size"),
            sync_duration=durations.amount("sync"),
            async_duration=durations.amount("async"),
            alignment_duration=alignment.amount("duration"),
            start_delay=fields.amount("start_delay"),
            processed_data=alignment.amount("processed"),
            persisted_data=alignment.amount("persisted"),
            unaligned=fields.flag("unaligned_checkpoint", False),
            aborted=fields.flag("aborted", False),
        )


@dataclass(frozen=True)
class OperatorSubtasks:
    totals: TaskStats
    subtasks: tuple[SubtaskStats, ...]

    @classmethod
    def parse(cls, fields: Fields) -> OperatorSubtasks:
        subtasks = (SubtaskStats.parse(subtask) for subtask in fields.children("subtasks"))
        return cls(TaskStats.parse(fields), tuple(sorted(subtasks, key=lambda subtask: subtask.index)))
