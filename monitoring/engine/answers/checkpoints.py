"""The checkpoints in an engine's history of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from monitoring.engine.causes import human
from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields
from monitoring.reasons.engines import EngineReason

NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"
_CHECKPOINT = ("id", "status", "trigger_timestamp", "discarded")
_NUMBERS = frozenset((int, float))  # excludes bool


@dataclass(frozen=True)
class TaskStats:
    """One operator's share of a checkpoint."""

    latest_ack_at: datetime | None
    end_to_end_duration: int | None
    checkpointed_size: int | None
    state_size: int | None
    processed_data: int | None
    persisted_data: int | None
    num_subtasks: int
    num_acknowledged_subtasks: int

    @classmethod
    def parse(cls, fields: Fields) -> TaskStats:
        return cls(
            latest_ack_at=fields.optional_moment("latest_ack_timestamp"),
            end_to_end_duration=fields.amount("end_to_end_duration"),
            checkpointed_size=fields.amount("checkpointed_size"),
            state_size=fields.amount("state_size"),
            processed_data=fields.amount("processed_data"),
            persisted_data=fields.amount("persisted_data"),
            num_subtasks=fields.small("num_subtasks"),
            num_acknowledged_subtasks=fields.small("num_acknowledged_subtasks"),
        )


@dataclass(frozen=True)
class CheckpointStats:
    """One entry of the history, or one checkpoint's details (then `tasks` is filled, keyed by vertex id)."""

    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str
    checkpoint_type: str
    triggered_at: datetime
    totals: TaskStats
    external_path: str
    discarded: bool
    failed_at: datetime | None
    failure_message: str
    tasks: Mapping[str, TaskStats]
    # The raw values of _CHECKPOINT. If they are equal, a final checkpoint has not changed.
    answer: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @property
    def final(self) -> bool:
        return self.status != "IN_PROGRESS"

    @classmethod
    def known_or_parsed(cls, fields: Fields, known: Mapping[int, CheckpointStats]) -> CheckpointStats:
        raw_values = fields.raw_values(_CHECKPOINT)
        key = raw_values[0]
        before = known.get(key) if type(key) is int else None
        if before is None or not before.final or before.answer[:-1] != raw_values[:-1]:
            return cls.parse(fields)
        if before.answer == raw_values:
            return before
        return replace(before, discarded=fields.flag("discarded", False), answer=raw_values)

    @classmethod
    def parse(cls, fields: Fields) -> CheckpointStats:
        path = fields.optional_text("external_path")
        return cls(
            id=_checkpoint_id(fields),
            status=_one_of(fields, "status", ("IN_PROGRESS", "COMPLETED", "FAILED")),
            is_savepoint=fields.flag("is_savepoint"),
            savepoint_format=fields.optional_text("savepointFormat")[:12],
            checkpoint_type=_checkpoint_type(fields),
            triggered_at=fields.moment("trigger_timestamp"),
            totals=TaskStats.parse(fields),
            external_path="" if path == NOT_ADDRESSABLE else path,
            discarded=fields.flag("discarded", False),
            failed_at=fields.optional_moment("failure_timestamp"),
            failure_message=human(fields.optional_text("failure_message")),
            tasks={name: TaskStats.parse(task) for name, task in fields.named("tasks").items()}
            if fields.raw.get("tasks")
            else {},
            answer=fields.raw_values(_CHECKPOINT),
        )


@dataclass(frozen=True)
class Restored:
    id: int
    at: datetime
    is_savepoint: bool
    external_path: str

    @classmethod
    def parse(cls, fields: Fields) -> Restored:
        path = fields.optional_text("external_path")
        return cls(
            id=_checkpoint_id(fields),
            at=fields.moment("restore_timestamp"),
            is_savepoint=fields.flag("is_savepoint"),
            external_path="" if path == NOT_ADDRESSABLE else path,
        )


@dataclass(frozen=True)
class Counts:
    """The checkpoint counts since the job manager started or recovered the job. A new job manager resets them.

    `failed` also counts checkpoints that never got an ID. None: not known for a query that Waymark only watches.
    """

    restored: int | None
    total: int
    in_progress: int | None
    completed: int
    failed: int | None

    @classmethod
    def parse(cls, fields: Fields) -> Counts:
        return cls(
            restored=_count_or_null(fields, "restored"),
            total=fields.whole("total"),
            in_progress=_count_or_null(fields, "in_progress"),
            completed=fields.whole("completed"),
            failed=_count_or_null(fields, "failed"),
        )

    def as_row(self) -> dict[str, int | None]:
        """Return the counts as Run.counts stores them."""
        return {
            "restored": self.restored,
            "total": self.total,
            "in_progress": self.in_progress,
            "completed": self.completed,
            "failed": self.failed,
        }


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job. `history` is newest first and short.

    `latest` has the newest completed checkpoint, savepoint and failed checkpoint, unless `history` has them.
    """

    counts: Counts
    summary: Mapping[str, Mapping[str, float | None]]
    history: tuple[CheckpointStats, ...]
    latest: tuple[CheckpointStats, ...]
    restored: Restored | None

    @property
    def history_length(self) -> int | None:
        """The capacity of the engine's history, once the engine dropped a checkpoint from it: None before that."""
        with_an_id = self.counts.completed + (self.counts.in_progress or 0)
        return len(self.history) if self.history and with_an_id > len(self.history) else None

    @property
    def entries(self) -> tuple[CheckpointStats, ...]:
        return (*self.history, *self.latest)

    @classmethod
    def parse(cls, fields: Fields, known: Mapping[int, CheckpointStats] = MappingProxyType({})) -> Checkpoints:
        """Parse the answer. `known` has earlier parsed checkpoints by ID, which are reused if unchanged.

        The only possible change of a finished checkpoint is that it is discarded.
        """
        history = tuple(CheckpointStats.known_or_parsed(entry, known) for entry in fields.children("history"))
        newest = fields.child("latest")
        kinds = [newest.optional_child(kind) for kind in ("completed", "savepoint", "failed")]
        listed = {entry.id for entry in history}
        older = (kind for kind in kinds if kind is not None and not kind.is_one_of("id", listed))
        latest = {entry.id: entry for entry in (CheckpointStats.known_or_parsed(kind, known) for kind in older)}
        restored = newest.optional_child("restored")
        return cls(
            counts=Counts.parse(fields.child("counts")),
            summary={name: _statistics(value) for name, value in fields.named("summary").items()},
            history=history,
            latest=tuple(latest.values()),
            restored=None if restored is None else Restored.parse(restored),
        )


def _count_or_null(fields: Fields, name: str) -> int | None:
    return None if fields.raw.get(name, 0) is None else fields.whole(name)


def _one_of(fields: Fields, name: str, allowed: tuple[str, ...]) -> str:
    value = fields.text(name)
    if value not in allowed:
        raise Malformed(EngineReason.NOT_ONE_OF(name=name, value=value[:40], allowed=allowed))
    return value


def _checkpoint_id(fields: Fields) -> int:
    value = fields.whole("id")
    if value < 0:
        raise Malformed(EngineReason.NOT_A_CHECKPOINT_ID(value=value))
    return value


def _checkpoint_type(fields: Fields) -> str:
    if fields.raw.get("checkpoint_type") is None:
        return "SAVEPOINT" if fields.flag("is_savepoint") else "CHECKPOINT"
    return _one_of(fields, "checkpoint_type", ("CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"))


def _statistics(fields: Fields) -> dict[str, float | None]:
    """Return min, max, avg and percentiles. The engine sends the string "NaN" for a missing number, here None."""
    return {name: value if type(value) in _NUMBERS else None for name, value in fields.raw.items()}


@dataclass(frozen=True)
class SubtaskStats:
    """One subtask's share of a checkpoint. If not `acknowledged`, it is pending or failed and all numbers are None."""

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
    """One operator's share of a checkpoint, by subtask."""

    totals: TaskStats
    subtasks: tuple[SubtaskStats, ...]

    @classmethod
    def parse(cls, fields: Fields) -> OperatorSubtasks:
        subtasks = (SubtaskStats.parse(subtask) for subtask in fields.children("subtasks"))
        return cls(TaskStats.parse(fields), tuple(sorted(subtasks, key=lambda subtask: subtask.index)))
