"""Flink's configuration keys for checkpoints and restarts, parsed and checked.

Source of keys, defaults and limits: Flink's CheckpointingOptions and CheckpointConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from checkpointing.model.checkpoint import RetentionPolicy

PREFIX = "execution.checkpointing."
EXECUTOR_UPLOADS = "waymark.executor-uploads.min-size"


class CheckpointStorageKind(Enum):
    """Flink's names for `execution.checkpointing.storage`."""

    FILESYSTEM = "filesystem"
    JOBMANAGER = "jobmanager"


DISABLED_INTERVAL_MS = 2**63 - 1
UNLIMITED_FAILURES = 2**31 - 1

_UNITS_MS = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


_UNITS_BYTES = {
    "": 1, "b": 1, "bytes": 1,
    "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30, "t": 2**40, "tb": 2**40,
}  # fmt: skip


class InvalidConfiguration(ValueError):
    """A key has a value that is not allowed. The text names the key, the value and what is allowed."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"{key}: {value!r} is not allowed; {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


def duration_ms(key: str, text: str, *, least: int = 0) -> int:
    """Return a duration in Flink's notation (`5s`, `10 min`, `250ms`, but not `PT5M`) in milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS_MS:
        raise InvalidConfiguration(key, text, "write a whole number and a unit: ms, s, min, h or d")
    value = int(match[1]) * _UNITS_MS[match[2].lower()]
    if value < least:
        raise InvalidConfiguration(key, text, f"at least {least} ms")
    return value


def memory_bytes(key: str, text: str) -> int:
    """Return a size in Flink's notation (`64mb`, `1 g`) in bytes."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS_BYTES:
        raise InvalidConfiguration(key, text, "write a whole number and a unit: b, kb, mb, gb or tb")
    return int(match[1]) * _UNITS_BYTES[match[2].lower()]


def whole_number(key: str, text: str, *, least: int) -> int:
    if not re.fullmatch(r"-?\d+", text.strip()):
        raise InvalidConfiguration(key, text, "write a whole number")
    value = int(text)
    if value < least:
        raise InvalidConfiguration(key, text, f"at least {least}")
    return value


@dataclass(frozen=True)
class CheckpointConfiguration:
    """The settings for checkpoints. All times are in milliseconds.

    `interval_ms` is DISABLED_INTERVAL_MS if periodic checkpoints are off. `executor_uploads_bytes`: from this size on,
    executors upload a checkpoint's files to remote storage.
    """

    exactly_once: bool = True
    interval_ms: int = DISABLED_INTERVAL_MS
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retention: RetentionPolicy = RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS
    num_retained: int = 1
    checkpoint_directory: str | None = None
    savepoint_directory: str | None = None
    storage: CheckpointStorageKind = CheckpointStorageKind.FILESYSTEM
    executor_uploads_bytes: int = 256 * 2**20

    @property
    def periodic(self) -> bool:
        return self.interval_ms != DISABLED_INTERVAL_MS

    @property
    def effective_interval_ms(self) -> int:
        return max(self.interval_ms, self.min_pause_ms)

    @property
    def executor_heartbeat_ms(self) -> int:
        """Return Spark's default, or less if a checkpoint would otherwise expire before a task's progress is known."""
        return min(10_000, max(100, self.timeout_ms // 4))

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> CheckpointConfiguration:
        """Return the configuration in `settings`. Raise InvalidConfiguration, which names the first wrong key."""

        def text(name: str, default: str) -> str:
            return settings.get(PREFIX + name, default)

        mode = text("mode", "EXACTLY_ONCE").upper().replace("-", "_")
        if mode not in ("EXACTLY_ONCE", "AT_LEAST_ONCE"):
            raise InvalidConfiguration(PREFIX + "mode", mode, "EXACTLY_ONCE or AT_LEAST_ONCE")
        retention_key = PREFIX + "externalized-checkpoint-retention"
        retention = settings.get(retention_key, RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS.value).upper()
        if retention not in RetentionPolicy.__members__:
            raise InvalidConfiguration(retention_key, retention, " or ".join(RetentionPolicy.__members__))
        storage = _storage(settings.get(PREFIX + "storage", CheckpointStorageKind.FILESYSTEM.value))
        if storage is CheckpointStorageKind.JOBMANAGER and retention != _NOT_EXTERNALIZED:
            allowed = f"use {_NOT_EXTERNALIZED} with {PREFIX}storage: jobmanager, whose checkpoints end with the job"
            raise InvalidConfiguration(retention_key, retention, allowed)
        interval = settings.get(PREFIX + "interval")
        return cls(
            exactly_once=mode == "EXACTLY_ONCE",
            interval_ms=DISABLED_INTERVAL_MS
            if interval is None
            else duration_ms(PREFIX + "interval", interval, least=10),
            timeout_ms=duration_ms(PREFIX + "timeout", text("timeout", "10 min"), least=10),
            min_pause_ms=min(duration_ms(PREFIX + "min-pause", text("min-pause", "0 ms")), 365 * 86_400_000),
            max_concurrent=whole_number(
                PREFIX + "max-concurrent-checkpoints", text("max-concurrent-checkpoints", "1"), least=1
            ),
            tolerable_failures=whole_number(
                PREFIX + "tolerable-failed-checkpoints", text("tolerable-failed-checkpoints", "0"), least=0
            ),
            retention=RetentionPolicy[retention],
            num_retained=whole_number(PREFIX + "num-retained", text("num-retained", "1"), least=1),
            checkpoint_directory=settings.get(PREFIX + "dir"),
            savepoint_directory=settings.get(PREFIX + "savepoint-dir"),
            storage=storage,
            executor_uploads_bytes=memory_bytes(EXECUTOR_UPLOADS, settings.get(EXECUTOR_UPLOADS, "256mb")),
        )


_NOT_EXTERNALIZED = RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS.value


def _storage(text: str) -> CheckpointStorageKind:
    try:
        return CheckpointStorageKind(text.strip().lower())
    except ValueError:
        allowed = " or ".join(kind.value for kind in CheckpointStorageKind)
        raise InvalidConfiguration(PREFIX + "storage", text, allowed) from None
