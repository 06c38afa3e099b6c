"""The configuration of a job and of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpointing.masking import HIDDEN
from monitoring.engine.fields import LONG_MAX, Fields


@dataclass(frozen=True)
class CheckpointConfig:
    """A job's checkpoint settings. `interval` is None without periodic checkpoints.

    `raw` is the engine's object, with null as the interval if there are no periodic checkpoints.
    """

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
            raw=fields.storable() if periodic else {**fields.storable(), "interval": None},
        )


@dataclass(frozen=True)
class JobConfig:
    """A job's configuration. `launch` is the launch record of Waymark's job manager, None for Flink.

    Its keys are jar_id, entry_class, program_args, parallelism and configuration. `imported_queries`: ids of queries of
    Spark, as 32 hexadecimal digits, whose checkpoint locations the job continues.
    """

    restart_strategy: str
    parallelism: int | None
    user_config: Mapping[str, Any]
    launch: Mapping[str, Any] | None
    imported_queries: tuple[str, ...] = ()

    @classmethod
    def parse(cls, fields: Fields) -> JobConfig:
        execution = fields.optional_child("execution-config") or Fields({}, "execution-config")
        user_config, launch = execution.optional_child("user-config"), fields.optional_child("launch")
        return cls(
            restart_strategy=execution.optional_text("restart-strategy"),
            parallelism=execution.amount("job-parallelism"),
            user_config={} if user_config is None else user_config.storable(),
            launch=None if launch is None else launch_record(launch),
            imported_queries=_query_ids(fields),
        )

    @property
    def hides_secrets(self) -> bool:
        """Whether the engine replaced secrets in `launch`, so that it cannot start the job again."""
        launch = self.launch or {}
        texts = [*launch.get("program_args", ()), *launch.get("configuration", {}).values()]
        return any(HIDDEN in str(text) for text in texts)


def _query_ids(fields: Fields) -> tuple[str, ...]:
    texts = fields.texts("imported-queries") if "imported-queries" in fields.raw else []
    return tuple(text.replace("-", "").lower() for text in texts)


def launch_record(fields: Fields) -> dict[str, Any]:
    """Return the launch record without the savepoint, because each run has its own."""
    configuration = fields.optional_child("flinkConfiguration")
    return {
        "jar_id": fields.text("jarId"),
        "entry_class": fields.optional_text("entryClass"),
        "program_args": fields.texts("programArgsList"),
        "parallelism": fields.amount("parallelism"),
        "configuration": {} if configuration is None else dict(configuration.storable()),
    }
