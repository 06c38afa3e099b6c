"""The facts for a diagnosis, without I/O. Durations are in milliseconds, sizes in bytes. None: not known.

Engines' answers have no guarantees: arrays may be short or contain None, and any combination of numbers may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from monitoring.history.expectations import Expectation, Forecast

Values = Sequence[int | None]


@dataclass(frozen=True)
class OperatorFacts:
    """An operator's part of a checkpoint. Arrays are indexed by subtask, None if the subtask did not acknowledge.

    `inputs`: IDs of the operators that send to this one, empty for a source; None: the job graph is not known.
    """

    name: str
    vertex: str = ""
    inputs: Sequence[str] | None = None
    subtasks: int = 0
    acknowledged: int = 0
    end_to_end: Values = ()
    sync: Values = ()
    async_: Values = ()
    alignment: Values = ()
    start_delay: Values = ()
    state_size: Values = ()

    @property
    def is_source(self) -> bool:
        return self.inputs is not None and not self.inputs

    @property
    def is_complete(self) -> bool:
        """Whether every subtask has acknowledged."""
        return 0 < self.subtasks <= self.acknowledged


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint. `lasted` is its end-to-end duration, until now if it is pending.

    The phases are those of the slowest subtask.
    """

    number: int
    status: str
    triggered_at: datetime
    ended_at: datetime | None = None
    lasted: int | None = None
    failure: str = ""
    is_savepoint: bool = False
    acknowledged: int = 0
    subtasks: int = 0
    start_delay: int | None = None
    alignment: int | None = None
    sync: int | None = None
    async_: int | None = None
    checkpointed_size: int | None = None
    state_size: int | None = None
    operators: Sequence[OperatorFacts] = ()

    @property
    def has_failed(self) -> bool:
        return self.status == "FAILED"

    @property
    def is_pending(self) -> bool:
        return self.status == "IN_PROGRESS"


@dataclass(frozen=True)
class Normal:
    """Medians of the job's last `count` completed checkpoints before a given time, without savepoints."""

    count: int = 0
    duration: float | None = None
    duration_p95: float | None = None
    start_delay: float | None = None
    alignment: float | None = None
    sync: float | None = None
    async_: float | None = None
    checkpointed_size: float | None = None
    state_size: float | None = None


@dataclass(frozen=True)
class Raised:
    """One exception that the engine reported."""

    at: datetime
    text: str  # class, message and root cause, one line
    stacktrace: str = ""
    task: str = ""
    host: str = ""


@dataclass(frozen=True)
class Settings:
    """The job's checkpoint settings as its engine reports them. `keys`: all settings with their full names."""

    interval: int | None = None
    timeout: int | None = None
    min_pause: int | None = None
    max_concurrent: int | None = None
    tolerable: int | None = None
    retained: int | None = None
    mode: str = ""
    unaligned: bool | None = None
    retained_after_end: bool | None = None
    backend: str = ""
    restart_strategy: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, config: Mapping[str, Any], execution: Mapping[str, Any]) -> Settings:
        """Read /checkpoints/config and the stored configuration of the job. An invalid value becomes None."""
        kept = config.get("externalization")
        keys = {str(key): str(value) for key, value in execution.items() if value is not None}
        return cls(
            interval=_positive(config.get("interval")),
            timeout=_positive(config.get("timeout")),
            min_pause=_number(config.get("min_pause")),
            max_concurrent=_number(config.get("max_concurrent")),
            tolerable=_number(config.get("tolerable_failed_checkpoints")),
            retained=_number(config.get("num_retained")) or _number(_first(keys, RETAINED)),
            mode=str(config.get("mode") or ""),
            unaligned=_flag(config.get("unaligned_checkpoints")),
            retained_after_end=_flag(kept.get("enabled")) if isinstance(kept, dict) else None,
            backend=str(config.get("state_backend") or ""),
            restart_strategy=str(keys.get("restart-strategy.type") or keys.get("restart-strategy") or ""),
            keys=keys,
        )

    def says(self, *names: str) -> str:
        """Return the lower-case value of the first key in `names` that is set, "" if none is."""
        return _first(self.keys, names).strip().lower()


RETAINED = ("execution.checkpointing.num-retained", "state.checkpoints.num-retained")
_LARGEST = 2**53  # Flink writes "never" as its largest number


@dataclass(frozen=True)
class DiagnosisFacts:
    """The facts about one job at one time. `checkpoint`: the one to diagnose; None: the job as a whole."""

    now: datetime
    checkpoint: CheckpointFacts | None = None
    normal: Normal = Normal()
    usual: Mapping[str, Expectation] = field(
        default_factory=dict
    )  # expected for the checkpoint's hour of the week, or for `now` if there is no checkpoint
    forecast: Forecast | None = None
    raised: Sequence[Raised] = ()  # the newest first
    settings: Settings = Settings()
    engine: str = ""  # "flink", "spark"
    version: tuple[int, ...] = ()
    runs: bool = True
    run_started_at: datetime | None = None
    last_triggered_at: datetime | None = None
    silent_since: datetime | None = None  # since when the cluster does not answer or is not polled
    recent_failures: int = 0  # the number of checkpoints that failed within a week
    recent_restarts: int = 0
    has_savepoint_schedule: bool = True
    manages_savepoints: bool = True  # False: another system takes the savepoints
    manages_restarts: bool = False  # True: Waymark restarts the job automatically


def _first(keys: Mapping[str, str], names: Sequence[str]) -> str:
    return next((keys[name] for name in names if keys.get(name)), "")


def _number(value: object) -> int | None:
    """Return a whole number from 0 to the largest that JSON holds exactly, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < _LARGEST else None


def _positive(value: object) -> int | None:
    return _number(value) or None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
