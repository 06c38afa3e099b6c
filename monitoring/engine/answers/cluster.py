"""An engine's information about itself: its size, its settings and its uploaded programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from checkpointing.model.configuration import InvalidConfiguration, duration_ms
from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields
from monitoring.reasons.engines import EngineReason

# Flink's defaults of `web.checkpoints.history` and `web.refresh-interval`. Flink reports only values that are set.
DEFAULT_HISTORY = 10
DEFAULT_KEPT_S = 3.0
LONGEST_KEPT_S = 3_600.0


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
    """`/config`: the actions that the engine allows a web page. None: the engine does not report it.

    `is_history`: this is Flink's History Server, which serves only jobs that have ended.
    """

    can_submit: bool | None
    can_cancel: bool | None
    is_history: bool = False

    @classmethod
    def parse(cls, fields: Fields) -> WebConfig:
        features = fields.optional_child("features")
        said = {} if features is None else features.raw
        submit, cancel = said.get("web-submit"), said.get("web-cancel")
        return cls(
            submit if isinstance(submit, bool) else None,
            cancel if isinstance(cancel, bool) else None,
            said.get("web-history") is True,
        )


@dataclass(frozen=True)
class ManagerConfig:
    """`/jobmanager/config`: the job manager's settings. The engine masks secrets."""

    settings: Mapping[str, str]

    @classmethod
    def parse(cls, entries: object, where: str) -> ManagerConfig:
        if not isinstance(entries, list):
            raise Malformed(EngineReason.NOT_A_LIST(where=where))
        pairs = (Fields(entry, f"{where}[{index}]") for index, entry in enumerate(entries))
        return cls({pair.text("key"): pair.optional_text("value") for pair in pairs})

    @property
    def history_length(self) -> int:
        """The number of checkpoints of a job that the engine's history keeps."""
        text = self._first("web.checkpoints.history", "history-size")
        return min(int(text), 100_000) if text.isascii() and text.isdecimal() and int(text) else DEFAULT_HISTORY

    @property
    def answers_kept_s(self) -> float:
        """The number of seconds for which the engine caches its answers about a job's checkpoints."""
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
        """Return the first setting with a value. `keys` are names of Flink 2, Flink 1 and Waymark's job manager."""
        return next((self.settings[key] for key in keys if self.settings.get(key)), "")


@dataclass(frozen=True)
class JarFile:
    id: str
    name: str

    @classmethod
    def parse(cls, fields: Fields) -> JarFile:
        return cls(fields.text("id"), fields.text("name"))
