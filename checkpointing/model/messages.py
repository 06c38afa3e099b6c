"""The messages between a driver and the job manager: JSON objects over a WebSocket that the driver opens.

Every message carries `type`. A driver's messages carry `job_id` and `attempt`, and `session_id` once it is registered;
the job manager refuses a message whose session or attempt is not the current one. Times are epoch milliseconds,
durations milliseconds, sizes bytes.

    driver → job manager            job manager → driver
    Register                        Registered | Refused
    Heartbeat                       TriggerCheckpoint
    AcknowledgeCheckpoint           NotifyComplete · NotifyAborted
    DeclineCheckpoint               StopWithSavepoint … (a TriggerCheckpoint of kind SYNC_SAVEPOINT), then Stop
    DelayCheckpoint                 Cancel
    StatusUpdate                    BatchNumbersExtended
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

import msgspec

T = TypeVar("T")

_HALF_A_CHARACTER = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


class MalformedMessage(ValueError):
    """The text is not a message of this protocol. The error names the field."""


class VertexKind(Enum):
    SOURCE = "source"
    STATEFUL = "stateful"
    SINK = "sink"


class AfterRestore(Enum):
    """What happens after a restore to a sink's rows of later batches, which are computed again (decision 132).

    GOES_BACK: the sink removes the rows. REPLACED: newer rows replace all rows. WRITTEN_AGAIN: the rows stay, and are
    written a second time.
    """

    GOES_BACK = "goes-back"
    REPLACED = "replaced"
    WRITTEN_AGAIN = "written-again"


class CheckpointKind(Enum):
    """Flink's `checkpoint_type`."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    SYNC_SAVEPOINT = "SYNC_SAVEPOINT"

    @property
    def is_savepoint(self) -> bool:
        return self is not CheckpointKind.CHECKPOINT


class DriverState(Enum):
    """The driver's state.

    ENDED: all queries have ended by themselves, and it waits for the final savepoint and `Stop`.
    """

    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class FinishCause(Enum):
    """Why a driver reports FINISHED: the cause that the job manager sent with `Stop`.

    AFTER_SAVEPOINT: the savepoint of a stop, or the final one of queries that ended by themselves, is complete.
    BY_ITSELF: the queries ended by themselves, and nothing had to be saved.
    """

    BY_ITSELF = "BY_ITSELF"
    AFTER_SAVEPOINT = "AFTER_SAVEPOINT"
    FOR_RESCALE = "FOR_RESCALE"


@dataclass(frozen=True)
class Vertex:
    """An operator of the job: a stateful one has a subtask for each state partition, a source and a sink have one each.

    `after_restore` and `repeats_numbers` belong to a sink. `repeats_numbers`: a restore keeps the batch numbers of its
    query.
    """

    id: str
    name: str
    kind: VertexKind
    parallelism: int
    query: str
    after_restore: AfterRestore | None = None
    repeats_numbers: bool = False


@dataclass(frozen=True)
class StateFile:
    """One file of a snapshot.

    `path` is relative to the query's checkpointLocation, or, for a file sink's log, starts with `sink:`.
    `location` is the file's path relative to the job's checkpoint directory (`chk-7/…`, `shared/<checksum>`) or,
    for a savepoint, to the savepoint's own directory. storage/checksums.py explains `checksum`.
    """

    path: str
    location: str
    size: int
    checksum: str
    shared: bool = False


class ChannelKind(Enum):
    """How one query's output reaches another: a directory, a topic, or a way that only the program knows."""

    FILES = "files"
    TOPIC = "topic"
    NAMED = "named"


@dataclass(frozen=True)
class Channel:
    """Two queries of one job, of which one reads the other's output. The channel itself is durable.

    `location` is the directory or topic, "" if the program only named the queries. `source` is the consumer's source
    that reads there. In a snapshot, `position` is how far that source had read, in Spark's notation. The later output,
    up to the producer's batch, had not been read yet.
    """

    producer: str
    consumer: str
    kind: ChannelKind
    location: str
    source: int | None = None
    position: str | None = None


UNKNOWN = -1


@dataclass(frozen=True)
class SubtaskMetrics:
    """Measured figures of one subtask at one checkpoint, as in Flink's SubtaskCheckpointStatistics.

    `alignment_duration` and `sync_duration` are UNKNOWN where Spark does not measure them.
    """

    start_delay: int = 0
    alignment_duration: int = 0
    sync_duration: int = 0
    async_duration: int = 0
    checkpointed_size: int = 0
    state_size: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    processed_records: int = 0


@dataclass(frozen=True)
class ExceptionInfo:
    """A failure as `/jobs/:id/exceptions` shows it.

    `recoverable` False: the job is never restarted. `is_mistake`: the program itself is wrong, so that a job that has
    never been RUNNING is not restarted. `keeps_state`: a job that fails with it keeps its snapshots, independent of its
    retention.
    """

    name: str
    message: str
    stacktrace: str
    timestamp: int
    task_name: str | None = None
    recoverable: bool = True
    is_mistake: bool = False
    keeps_state: bool = False


@dataclass(frozen=True)
class Register:
    """The driver's first message. `at_least_once`: a query rules out exactly-once, independent of the job's settings.

    `has_advanced` belongs to ENDED: a query has committed a batch since the attempt began. `secret` proves that the
    sender is the driver of this attempt. It is in the attempt's `driver.json`.
    """

    type: ClassVar[str] = "register"
    job_id: str
    attempt: int
    pid: int
    state: DriverState
    vertices: tuple[Vertex, ...]
    last_batches: dict[str, int]
    restored_checkpoint_id: int | None = None
    at_least_once: bool = False
    has_advanced: bool = True
    secret: str = dataclasses.field(default="", repr=False)


@dataclass(frozen=True)
class Registered:
    """The answer to Register. BatchNumbersExtended explains `batch_numbers_end`, which is None without a range."""

    type: ClassVar[str] = "registered"
    session_id: str
    pending_checkpoints: tuple[int, ...]
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    batch_numbers_end: int | None = None


@dataclass(frozen=True)
class Refused:
    """The driver belongs to an old attempt or an unknown job, and must stop itself."""

    type: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True)
class Wait:
    """The leader cannot read yet what is stored about the job. The driver continues and registers again.

    Its lease starts again, because this leader starts no other attempt before it has read which attempt exists.
    """

    type: ClassVar[str] = "wait"
    session_id: str


@dataclass(frozen=True)
class VertexRows:
    """What Spark counted for a vertex since the attempt began. None: Spark does not count it.

    `state` is the number of rows in the operator's state, `late` the number that it dropped after the watermark had
    passed.
    """

    read: int | None = None
    written: int | None = None
    state: int | None = None
    updated: int | None = None
    removed: int | None = None
    late: int | None = None


@dataclass(frozen=True)
class QueryProgress:
    """Figures of the newest batch. `rows`, by vertex, covers all batches. None: Spark does not report the figure.

    `batches`: how many batches the attempt has committed.
    """

    batch_id: int
    input_rows: int | None
    batch_duration_ms: int | None
    watermark: str | None = None
    rows: dict[str, VertexRows] = dataclasses.field(default_factory=dict)
    batches: int | None = None


@dataclass(frozen=True)
class Executor:
    """A process that runs the job's tasks; `id` is "driver" for the driver's own JVM. `address` is host:port.

    `max_memory` is what Spark manages for execution and storage, `used_memory` what storage uses of it now.
    """

    id: str
    address: str
    cores: int
    max_memory: int
    used_memory: int
    active_tasks: int


@dataclass(frozen=True)
class Heartbeat:
    type: ClassVar[str] = "heartbeat"
    session_id: str
    job_id: str
    attempt: int
    queries: dict[str, QueryProgress]
    executors: tuple[Executor, ...] = ()


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Take checkpoint `checkpoint_id` at the next batch boundary.

    `directory` is the checkpoint's own directory (it exists and is empty). `shared_directory` is the job's shared pool,
    None for a savepoint, which contains all its files. Both are locations of any storage; with a `directory` in the
    job manager's memory (`jobmanager://…`) the state travels inside the acknowledgements. `timeout_ms` after the
    trigger the job manager aborts it.
    """

    type: ClassVar[str] = "trigger"
    session_id: str
    checkpoint_id: int
    kind: CheckpointKind
    trigger_timestamp: int
    timeout_ms: int
    directory: str
    shared_directory: str | None
    full: bool = False


@dataclass(frozen=True)
class AcknowledgeCheckpoint:
    """A subtask's part of a checkpoint is durable.

    `contents`: the bytes of `files` in base64, by location, if the job manager's memory is the storage.
    """

    type: ClassVar[str] = "acknowledge"
    session_id: str
    job_id: str
    attempt: int
    checkpoint_id: int
    vertex_id: str
    subtask: int
    metrics: SubtaskMetrics
    files: tuple[StateFile, ...]
    batches: dict[str, int]
    contents: dict[str, str] = dataclasses.field(default_factory=dict)
    channels: tuple[Channel, ...] = ()


@dataclass(frozen=True)
class DelayCheckpoint:
    """The checkpoint waits. `cause` is a sentence about the query and the reason, "" if it waits no longer.

    While it waits for batches to end, `silent_ms` is the longest time that a query has made no progress.
    """

    type: ClassVar[str] = "delay"
    session_id: str
    job_id: str
    attempt: int
    checkpoint_id: int
    cause: str
    silent_ms: int | None = None


@dataclass(frozen=True)
class DeclineCheckpoint:
    """The driver cannot take the checkpoint.

    `reason` is a CheckpointFailureReason name, `cause` one sentence for people.
    """

    type: ClassVar[str] = "decline"
    session_id: str
    job_id: str
    attempt: int
    checkpoint_id: int
    reason: str
    cause: str


@dataclass(frozen=True)
class StatusUpdate:
    """The driver's status. Register explains `at_least_once` and `has_advanced`.

    `finish_cause` and `queries` (last figures) belong to FINISHED.
    """

    type: ClassVar[str] = "status"
    session_id: str
    job_id: str
    attempt: int
    state: DriverState
    vertices: tuple[Vertex, ...] = ()
    exception: ExceptionInfo | None = None
    at_least_once: bool = False
    finish_cause: FinishCause | None = None
    has_advanced: bool = True
    queries: dict[str, QueryProgress] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class NotifyComplete:
    type: ClassVar[str] = "complete"
    session_id: str
    checkpoint_id: int
    last_subsumed: int | None


@dataclass(frozen=True)
class NotifyAborted:
    type: ClassVar[str] = "abort"
    session_id: str
    checkpoint_id: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """End the queries after their batch and report FINISHED with this `cause`. May be repeated.

    See FinishCause. FOR_RESCALE: the next attempt has another parallelism.
    """

    type: ClassVar[str] = "stop"
    session_id: str
    cause: FinishCause | None = None


@dataclass(frozen=True)
class BatchNumbersExtended:
    """The attempt's batches may have the numbers below `end`. Sent only to an attempt that has a range."""

    type: ClassVar[str] = "numbers"
    session_id: str
    end: int


@dataclass(frozen=True)
class Cancel:
    """End the queries without a snapshot and report CANCELED."""

    type: ClassVar[str] = "cancel"
    session_id: str


DriverMessage = Register | Heartbeat | AcknowledgeCheckpoint | DeclineCheckpoint | DelayCheckpoint | StatusUpdate
JobManagerMessage = (
    Registered
    | Refused
    | Wait
    | TriggerCheckpoint
    | NotifyComplete
    | NotifyAborted
    | BatchNumbersExtended
    | Stop
    | Cancel
)
Message = DriverMessage | JobManagerMessage

_BY_TYPE: dict[str, type[Any]] = {cls.type: cls for cls in typing.get_args(Message)}


def encode(message: Message) -> str:
    return json.dumps({"type": message.type, **to_plain(message)}, separators=(",", ":"))


def decode(text: str | bytes) -> Message:
    """Decode the message in `text`. Raise MalformedMessage on anything else.

    Unpaired surrogates, which a program's exception may contain, become question marks. Otherwise no answer could
    contain the text.
    """
    try:
        fields = json.loads(text)
        if _HALF_A_CHARACTER.search(text if isinstance(text, str) else text.decode()):
            fields = json.loads(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
    except ValueError as error:
        raise MalformedMessage(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MalformedMessage("a message is a JSON object")
    kind = fields.pop("type", None)
    if kind not in _BY_TYPE:
        raise MalformedMessage(f"type: {kind!r} is not a message of this protocol")
    return typing.cast("Message", from_plain(_BY_TYPE[kind], fields))


def to_plain(value: Any) -> Any:
    """Return a dataclass of this module as JSON values."""
    return msgspec.to_builtins(value)


def from_plain(cls: type[T], fields: dict[str, Any]) -> T:
    """Return the dataclass `cls` from JSON values. Ignore unknown fields, so that a newer peer may add some."""
    try:
        return msgspec.convert(fields, cls)
    except msgspec.ValidationError as error:
        raise MalformedMessage(_problem(cls, fields, cls.__name__) or str(error)) from error


def _problem(hint: Any, value: Any, where: str) -> str:
    """Return the first field in `value` that is not what `hint` says, with what is expected there; "" if all are."""
    kind = typing.get_origin(hint) or hint
    args = [each for each in typing.get_args(hint) if each is not types.NoneType]
    if kind in (typing.Union, types.UnionType):
        return "" if value is None else _problem(args[0], value, where)
    if kind is tuple and isinstance(value, list):
        return _first(_problem(args[0], item, where) for item in value)
    if kind is dict and isinstance(value, dict):
        return _first(_problem(args[1], item, f"{where}.{key}") for key, item in value.items())
    if dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            return _first(_problem_of(field, hint, value) for field in dataclasses.fields(hint))
        return f"{where}: an object is expected, not {value!r}"
    if issubclass(kind, Enum):
        allowed = [item.value for item in kind]
        return "" if value in allowed else f"{where}: {value!r} is not one of {allowed}"
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return ""
    expected = {tuple: "a list", dict: "an object"}.get(kind, kind.__name__)
    return f"{where}: {expected} is expected, not {value!r}"


def _problem_of(field: dataclasses.Field[Any], cls: type[Any], fields: dict[str, Any]) -> str:
    if field.name in fields:
        return _problem(typing.get_type_hints(cls)[field.name], fields[field.name], f"{cls.__name__}.{field.name}")
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return "" if has_default else f"{cls.__name__}.{field.name} is missing"


def _first(problems: Iterator[str]) -> str:
    return next(filter(None, problems), "")
