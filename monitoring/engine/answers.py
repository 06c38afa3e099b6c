"""What an engine answers, as values. The differences between Flink 1.15 and 2.x end here.

Times are aware datetimes, durations milliseconds, sizes bytes. None: the engine does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from checkpointing.configuration import InvalidConfiguration, duration_ms
from monitoring.engine.causes import human, root_cause
from monitoring.engine.errors import Malformed
from monitoring.engine.fields import LONG_MAX, Fields

JOB_STATES = frozenset(
    {
        *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED"),
        *("RESTARTING", "SUSPENDED", "RECONCILING"),
    }
)
TERMINAL_STATES = frozenset(("FAILED", "CANCELED", "FINISHED"))
NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"


@dataclass(frozen=True)
class Overview:
    version: str
    commit: str
    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int

    @classmethod
    def parse(cls, fields: Fields) -> Overview:
        return cls(
            version=fields.text("flink-version"),
            commit=fields.optional_text("flink-commit"),
            taskmanagers=fields.small("taskmanagers"),
            slots_total=fields.small("slots-total"),
            slots_available=fields.small("slots-available"),
            jobs_running=fields.small("jobs-running"),
        )


@dataclass(frozen=True)
class WebConfig:
    """`/config`: what the engine lets a web page do. None: it does not say."""

    can_submit: bool | None
    can_cancel: bool | None

    @classmethod
    def parse(cls, fields: Fields) -> WebConfig:
        features = fields.optional_child("features")
        said = {} if features is None else features.raw
        submit, cancel = said.get("web-submit"), said.get("web-cancel")
        return cls(submit if isinstance(submit, bool) else None, cancel if isinstance(cancel, bool) else None)


# Flink's defaults of `web.checkpoints.history` and `web.refresh-interval`, which it shows only where they are set.
DEFAULT_HISTORY = 10
DEFAULT_KEPT_S = 3.0
LONGEST_KEPT_S = 3_600.0


@dataclass(frozen=True)
class ManagerConfig:
    """`/jobmanager/config`: the job manager's settings, secrets masked by it."""

    settings: Mapping[str, str]

    @classmethod
    def parse(cls, entries: object, where: str) -> ManagerConfig:
        if not isinstance(entries, list):
            raise Malformed(f"{where} is not a list.")
        pairs = (Fields(entry, f"{where}[{index}]") for index, entry in enumerate(entries))
        return cls({pair.text("key"): pair.optional_text("value") for pair in pairs})

    @property
    def history_length(self) -> int:
        """How many checkpoints of a job the engine remembers."""
        text = self._first("web.checkpoints.history", "history-size")
        return min(int(text), 100_000) if text.isascii() and text.isdecimal() and int(text) else DEFAULT_HISTORY

    @property
    def answers_kept_s(self) -> float:
        """For how long it gives the same answer to what is asked of a job's checkpoints."""
        for key in ("rest.cache.checkpoint-statistics.timeout", "web.refresh-interval"):
            with suppress(KeyError, InvalidConfiguration, OverflowError):
                return min(duration_ms(key, self.settings[key]) / 1000, LONGEST_KEPT_S)
        return DEFAULT_KEPT_S

    @property
    def checkpoint_directory(self) -> str:
        return self._first("execution.checkpointing.dir", "state.checkpoints.dir", "checkpoint-directory")

    @property
    def savepoint_directory(self) -> str:
        return self._first("execution.checkpointing.savepoint-dir", "state.savepoints.dir", "savepoint-directory")

    def _first(self, *keys: str) -> str:
        """Names of Flink 2 and 1, and of our job manager."""
        return next((self.settings[key] for key in keys if self.settings.get(key)), "")


@dataclass(frozen=True)
class JobOverview:
    """`started_at` is set anew by a job manager's failover: it is not the time of submission.

    `moved_at`: when the job last entered a state, by the engine's clock.
    """

    id: str
    name: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    moved_at: datetime | None = None
    # What it was read from.
    answer: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, fields: Fields) -> JobOverview:
        return cls(
            id=fields.identifier("jid"),
            name=fields.text("name"),
            state=_state(fields.text("state")),
            started_at=fields.moment("start-time"),
            ended_at=fields.optional_moment("end-time"),
            moved_at=fields.optional_moment("last-modification"),
            answer=_told(fields.raw, _JOB_OVERVIEW),
        )

    @classmethod
    def parse_all(
        cls, fields: Fields, known: Mapping[str, JobOverview]
    ) -> tuple[dict[str, JobOverview], tuple[Malformed, ...]]:
        """By id, and what is wrong with the others. Malformed when not one of them can be read.

        A job of which nothing new is said is the very object of `known`, as most are: lists are long.
        """
        jobs, misread = {}, []
        for job in fields.items("jobs"):
            try:
                read = cls._parse_unless_known(job(), known)
            except Malformed as error:
                misread.append(error)
            else:
                jobs[read.id] = read
        if misread and not jobs:
            raise misread[0]
        return jobs, tuple(misread)

    @classmethod
    def _parse_unless_known(cls, job: Fields, known: Mapping[str, JobOverview]) -> JobOverview:
        key = job.raw.get("jid")
        before = known.get(key) if isinstance(key, str) else None
        return before if before is not None and before.answer == _told(job.raw, _JOB_OVERVIEW) else cls.parse(job)


_JOB_OVERVIEW = ("name", "state", "start-time", "end-time", "last-modification")
_CHECKPOINT = ("id", "status", "trigger_timestamp", "discarded")


def _told(raw: Mapping[str, Any], names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(map(raw.get, names))


@dataclass(frozen=True)
class Vertex:
    id: str
    name: str
    parallelism: int
    status: str

    @classmethod
    def parse(cls, fields: Fields) -> Vertex:
        return cls(
            fields.identifier("id"), fields.text("name"), fields.small("parallelism"), fields.optional_text("status")
        )

    def as_row(self) -> dict[str, object]:
        """As Run.vertices holds it."""
        return {"id": self.id, "name": self.name, "parallelism": self.parallelism}


@dataclass(frozen=True)
class JobDetail:
    id: str
    name: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    vertices: tuple[Vertex, ...]

    @property
    def all_vertices_running(self) -> bool:
        return bool(self.vertices) and all(vertex.status == "RUNNING" for vertex in self.vertices)

    @classmethod
    def parse(cls, fields: Fields) -> JobDetail:
        return cls(
            id=fields.identifier("jid"),
            name=fields.text("name"),
            state=_state(fields.text("state")),
            started_at=fields.moment("start-time"),
            ended_at=fields.optional_moment("end-time"),
            vertices=tuple(Vertex.parse(vertex) for vertex in fields.children("vertices")),
        )


@dataclass(frozen=True)
class SourceRows:
    """What a source vertex has handed on, and for how long (ms) it has run, both since its tasks were last started."""

    rows: int
    duration: int

    @classmethod
    def parse_all(cls, fields: Fields) -> list[SourceRows]:
        """Of the vertices without an input; Flink counts the rows that leave one, Spark those it reads."""
        nodes = fields.child("plan").children("nodes")
        sources = {node.text("id") for node in nodes if not node.raw.get("inputs")}
        return [cls._parse(vertex) for vertex in fields.children("vertices") if vertex.text("id") in sources]

    @classmethod
    def _parse(cls, fields: Fields) -> SourceRows:
        metrics = fields.child("metrics")
        counted = [metrics.amount(name) or 0 for name in ("read-records", "write-records")]
        return cls(max(counted), fields.amount("duration") or 0)


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
    # What tells it from any other, and from itself at another time, once it is final.
    answer: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @property
    def final(self) -> bool:
        return self.status != "IN_PROGRESS"

    @classmethod
    def known_or_parsed(cls, fields: Fields, known: Mapping[int, CheckpointStats]) -> CheckpointStats:
        told = _told(fields.raw, _CHECKPOINT)
        key = told[0]
        before = known.get(key) if type(key) is int else None
        return before if before is not None and before.final and before.answer == told else cls.parse(fields)

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
            answer=_told(fields.raw, _CHECKPOINT),
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
    """Since the job manager took the job over: they fall when it is replaced. `failed` also counts checkpoints that
    never got an id."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int

    @classmethod
    def parse(cls, fields: Fields) -> Counts:
        return cls(**{name: fields.whole(name) for name in ("restored", "total", "in_progress", "completed", "failed")})

    def as_row(self) -> dict[str, int]:
        """As Run.counts holds it."""
        return {
            "restored": self.restored,
            "total": self.total,
            "in_progress": self.in_progress,
            "completed": self.completed,
            "failed": self.failed,
        }


@dataclass(frozen=True)
class Checkpoints:
    """`history` is newest first and short. `latest` holds those of the newest completed, savepoint and failed one
    that the history no longer has."""

    counts: Counts
    summary: Mapping[str, Mapping[str, float | None]]
    history: tuple[CheckpointStats, ...]
    latest: tuple[CheckpointStats, ...]
    restored: Restored | None

    @property
    def history_length(self) -> int | None:
        """How many checkpoints the engine remembers, once it had to forget one: None before that."""
        with_an_id = self.counts.completed + self.counts.in_progress
        return len(self.history) if self.history and with_an_id > len(self.history) else None

    @property
    def entries(self) -> tuple[CheckpointStats, ...]:
        return (*self.history, *self.latest)

    @classmethod
    def parse(cls, fields: Fields, known: Mapping[int, CheckpointStats] = MappingProxyType({})) -> Checkpoints:
        """An entry that is one of `known`, by id, is that very object: a finished checkpoint is only ever discarded."""
        history = tuple(CheckpointStats.known_or_parsed(entry, known) for entry in fields.children("history"))
        newest = fields.child("latest")
        kinds = [newest.optional_child(kind) for kind in ("completed", "savepoint", "failed")]
        read = (CheckpointStats.known_or_parsed(kind, known) for kind in kinds if kind is not None)
        entries = {entry.id: entry for entry in read}
        for entry in history:
            entries.pop(entry.id, None)
        restored = newest.optional_child("restored")
        return cls(
            counts=Counts.parse(fields.child("counts")),
            summary={name: _statistics(value) for name, value in fields.named("summary").items()},
            history=history,
            latest=tuple(entries.values()),
            restored=None if restored is None else Restored.parse(restored),
        )


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


@dataclass(frozen=True)
class CheckpointConfig:
    """`interval` None: no periodic checkpoints. `raw` is the engine's object with that said as null."""

    interval: int | None
    timeout: int
    min_pause: int
    max_concurrent: int
    tolerable_failed_checkpoints: int
    retained_on_cancellation: bool
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, fields: Fields) -> CheckpointConfig:
        interval = fields.whole("interval")
        externalization = fields.child("externalization")
        periodic = 0 < interval < LONG_MAX
        return cls(
            interval=interval if periodic else None,
            timeout=fields.whole("timeout"),
            min_pause=fields.whole("min_pause"),
            max_concurrent=fields.whole("max_concurrent"),
            tolerable_failed_checkpoints=fields.amount("tolerable_failed_checkpoints") or 0,
            retained_on_cancellation=externalization.flag("enabled")
            and not externalization.flag("delete_on_cancellation"),
            raw=fields.kept() if periodic else {**fields.kept(), "interval": None},
        )


@dataclass(frozen=True)
class JobException:
    """`message` is the innermost cause in one line, `headline` the exception's own message; `stacktrace` is cut after
    20,000 characters. `host`: the task manager's address, "" for the job as a whole."""

    name: str
    message: str
    stacktrace: str
    at: datetime
    task: str
    host: str = ""
    headline: str = ""

    @classmethod
    def parse(cls, fields: Fields) -> JobException:
        stacktrace = fields.optional_text("stacktrace")
        name = fields.optional_text("exceptionName")
        return cls(
            name=name,
            message=(root_cause(stacktrace) or human(name)).removeprefix(f"{name}: "),
            stacktrace=stacktrace[:20_000],
            at=fields.moment("timestamp"),
            task=fields.optional_text("taskName"),
            # "location" up to Flink 1.20
            host=fields.optional_text("endpoint") or fields.optional_text("location"),
            headline=human(stacktrace),
        )

    @classmethod
    def parse_with_concurrent(cls, fields: Fields) -> list[JobException]:
        """The exception, and those of other tasks that the engine put under it."""
        below = fields.children("concurrentExceptions") if fields.raw.get("concurrentExceptions") else []
        return [cls.parse(fields), *(cls.parse(each) for each in below)]

    def as_row(self) -> dict[str, str]:
        """As Run.exceptions holds it."""
        return {
            "name": self.name,
            "message": self.message,
            "stacktrace": self.stacktrace,
            "at": self.at.isoformat(),
            "task": self.task,
        }


@dataclass(frozen=True)
class JobConfig:
    """`launch` is how our own job manager started the job (jar_id, entry_class, program_args, parallelism,
    configuration); a Flink cluster cannot say."""

    restart_strategy: str
    parallelism: int | None
    user_config: Mapping[str, Any]
    launch: Mapping[str, Any] | None

    @classmethod
    def parse(cls, fields: Fields) -> JobConfig:
        execution = fields.optional_child("execution-config") or Fields({}, "execution-config")
        user_config, launch = execution.optional_child("user-config"), fields.optional_child("launch")
        return cls(
            restart_strategy=execution.optional_text("restart-strategy"),
            parallelism=execution.amount("job-parallelism"),
            user_config={} if user_config is None else user_config.kept(),
            launch=None if launch is None else _launch(launch),
        )


@dataclass(frozen=True)
class JarFile:
    id: str
    name: str
    entry_classes: tuple[str, ...]

    @classmethod
    def parse(cls, fields: Fields) -> JarFile:
        entries = fields.children("entry") if fields.raw.get("entry") else []
        return cls(fields.text("id"), fields.text("name"), tuple(entry.text("name") for entry in entries))


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
        )


def _state(value: str) -> str:
    if value not in JOB_STATES:
        raise Malformed(f"{value[:40]!r} is not a job state.")
    return value


def _one_of(fields: Fields, name: str, allowed: tuple[str, ...]) -> str:
    value = fields.text(name)
    if value not in allowed:
        raise Malformed(f"{name} {value[:40]!r} is none of {', '.join(allowed)}.")
    return value


def _checkpoint_id(fields: Fields) -> int:
    value = fields.whole("id")
    if value < 0:
        raise Malformed(f"{value} is not a checkpoint id.")
    return value


def _checkpoint_type(fields: Fields) -> str:
    if fields.raw.get("checkpoint_type") is None:
        return "SAVEPOINT" if fields.flag("is_savepoint") else "CHECKPOINT"
    return _one_of(fields, "checkpoint_type", ("CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"))


def _launch(fields: Fields) -> dict[str, Any]:
    """Without the savepoint of this one run: the next run has its own."""
    configuration = fields.optional_child("flinkConfiguration")
    return {
        "jar_id": fields.text("jarId"),
        "entry_class": fields.optional_text("entryClass"),
        "program_args": fields.texts("programArgsList"),
        "parallelism": fields.amount("parallelism"),
        "configuration": {} if configuration is None else dict(configuration.kept()),
    }


def _statistics(fields: Fields) -> dict[str, float | None]:
    """min, max, avg and percentiles; the string "NaN" where there is no figure yet."""
    return {
        name: value if isinstance(value, int | float) and not isinstance(value, bool) else None
        for name, value in fields.raw.items()
    }
