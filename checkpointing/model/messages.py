"""The messages between a driver and the job manager: JSON objects over a WebSocket that the driver opens.

Every message carries `type`. A driver's messages carry `job_id` and `attempt`, and `session_id` once it is registered;
the job manager refuses one whose session or attempt is not the current one. Times are epoch milliseconds, durations
milliseconds, sizes bytes.

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
import functools
import json
import re
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")

_HALF_A_CHARACTER = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


class MalformedMessage(ValueError):
    """Not a message of this protocol; the text names the field."""


class VertexKind(Enum):
    SOURCE = "source"
    STATEFUL = "stateful"
    SINK = "sink"


class AfterRestore(Enum):
    """What happens to a sink's rows of batches after a restored state (decision 132). The batches are computed again.

    GOES_BACK: the sink drops the rows. REPLACED: newer rows take the place of all rows. WRITTEN_AGAIN: the rows stay,
    and are written a second time.
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
    """ENDED: all queries have ended by themselves. The driver waits for the final savepoint and for `Stop`."""

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
    """An operator of the job: a stateful one has a subtask per state partition, a source and a sink have one each.

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
    `location` is where the bytes lie, relative to the job's checkpoint directory (`chk-7/…`, `shared/<checksum>`) or,
    for a savepoint, to the savepoint's own directory. `checksum`: see storage/checksums.py.
    """

    path: str
    location: str
    size: int
    checksum: str
    shared: bool = False


class ChannelKind(Enum):
    """How one query's output reaches another: a directory, a topic, or in a way that only the program knows."""

    FILES = "files"
    TOPIC = "topic"
    NAMED = "named"


@dataclass(frozen=True)
class Channel:
    """Two queries of one job, of which one reads what the other writes. What lies between them is durable in itself.

    `location` is the directory or topic, "" when the program only named the queries; `source` is the consumer's source
    that reads there. In a snapshot `position` is how far that source had read, as Spark writes it; what follows up to
    the producer's batch was on its way.
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

    `recoverable` False: never restart. `is_mistake`: the program itself is wrong, so that a job that has never been
    RUNNING is not restarted. `keeps_state`: a job that fails with it keeps its snapshots, whatever its retention says.
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
    """`at_least_once`: what the queries are rules out exactly-once, whatever the job's settings say.

    `has_advanced` belongs to ENDED: a query has committed a batch since the attempt began.
    `secret` proves that the sender is the driver of this attempt; it stands in the attempt's `driver.json`.
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
    """`batch_numbers_end`: see BatchNumbersExtended; None when the attempt has no range."""

    type: ClassVar[str] = "registered"
    session_id: str
    pending_checkpoints: tuple[int, ...]
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    batch_numbers_end: int | None = None


@dataclass(frozen=True)
class Refused:
    """The driver is not wanted (an old attempt, an unknown job): it stops itself."""

    type: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True)
class Wait:
    """The leader cannot read yet what is stored of the job: the driver runs on, and registers again.

    Its lease starts again: this leader starts no other attempt before it has read which one there is.
    """

    type: ClassVar[str] = "wait"
    session_id: str


@dataclass(frozen=True)
class VertexRows:
    """What Spark counted of a vertex since the attempt began; None: it does not count that.

    `state` is how many rows the operator's state has, `late` those that it dropped because the watermark had passed.
    """

    read: int | None = None
    written: int | None = None
    state: int | None = None
    updated: int | None = None
    removed: int | None = None
    late: int | None = None


@dataclass(frozen=True)
class QueryProgress:
    """Figures of the newest batch; `rows` by vertex, of all batches. None: Spark does not report the figure.

    `batches`: how many the attempt has committed.
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

    Memory is what Spark manages for execution and storage, and how much of it storage uses now.
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

    `directory` is the checkpoint's own directory (it exists and is empty); `shared_directory` is the job's shared pool,
    None for a savepoint, which holds all its files itself. Both are locations of any storage; with a `directory` in the
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
    """`contents`: where the job manager's memory is the storage, the bytes of `files` in base64, by location."""

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
    """The checkpoint waits; `cause` says in a sentence for which query and for what, "" when for nothing any more.

    While it waits for batches to end, `silent_ms` is how long a query has made no progress: the maximum of all of them.
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
    """`reason` is a CheckpointFailureReason name, `cause` one sentence for people."""

    type: ClassVar[str] = "decline"
    session_id: str
    job_id: str
    attempt: int
    checkpoint_id: int
    reason: str
    cause: str


@dataclass(frozen=True)
class StatusUpdate:
    """`at_least_once`, `has_advanced`: see Register. `finish_cause` and `queries` (last figures) belong to FINISHED."""

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
    return json.dumps({"type": message.type, **_plain(dataclasses.asdict(message))}, separators=(",", ":"))


def decode(text: str | bytes) -> Message:
    """The message in `text`; MalformedMessage on anything else.

    Halves of characters become question marks: a program's exception may have some, and no answer could tell of it.
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
    """A dataclass of this module as JSON values."""
    return _plain(dataclasses.asdict(value))


def from_plain(cls: type[T], fields: dict[str, Any]) -> T:
    """The dataclass `cls` out of JSON values; unknown fields are ignored, so that a newer peer may add some."""
    hints = _type_hints(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in fields:
            values[field.name] = _typed(hints[field.name], fields[field.name], f"{cls.__name__}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise MalformedMessage(f"{cls.__name__}.{field.name} is missing")
    return cls(**values)


@functools.cache
def _type_hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _typed(next(arg for arg in args if arg is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise MalformedMessage(f"{where}: a list is expected, not {value!r}")
        return tuple(_typed(args[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise MalformedMessage(f"{where}: an object is expected, not {value!r}")
        return {key: _typed(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise MalformedMessage(f"{where}: an object is expected, not {value!r}")
        return from_plain(typing.cast("type[Any]", hint), value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            raise MalformedMessage(f"{where}: {value!r} is not one of {[item.value for item in hint]}") from None
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise MalformedMessage(f"{where}: {hint.__name__} is expected, not {value!r}")
    return value
