"""Builders of facts about a job whose checkpoints usually take 600 ms, and about its problems."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from monitoring.diagnosis.diagnosis_facts import (
    CheckpointFacts,
    DiagnosisFacts,
    Normal,
    OperatorFacts,
    Raised,
    Settings,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EXPIRED = "Checkpoint expired before completing."
DECLINED = "Checkpoint was declined."
CONFIG = {
    "mode": "exactly_once",
    "interval": 10_000,
    "timeout": 60_000,
    "min_pause": 0,
    "max_concurrent": 1,
    "tolerable_failed_checkpoints": 0,
    "externalization": {"enabled": True, "delete_on_cancellation": False},
    "state_backend": "HashMapStateBackend",
    "unaligned_checkpoints": False,
}
USUAL = Normal(
    count=40,
    duration=600,
    duration_p95=900,
    start_delay=40,
    alignment=10,
    sync=30,
    async_=400,
    checkpointed_size=2_000_000,
    state_size=500_000_000,
)


def operator(name: str = "count", **arrays: Any) -> OperatorFacts:
    """Return the facts of an operator with four equal subtasks, except for the given arrays."""
    alike = {
        "end_to_end": [600] * 4,
        "sync": [30] * 4,
        "async_": [400] * 4,
        "alignment": [10] * 4,
        "start_delay": [40] * 4,
        "state_size": [1_000_000] * 4,
    }
    return OperatorFacts(name, **{"subtasks": 4, "acknowledged": 4, **alike, **arrays})


def checkpoint(**values: Any) -> CheckpointFacts:
    usual = CheckpointFacts(
        number=41,
        status="COMPLETED",
        triggered_at=NOW - timedelta(seconds=70),
        ended_at=NOW - timedelta(seconds=60),
        lasted=600,
        acknowledged=8,
        subtasks=8,
        start_delay=40,
        alignment=10,
        sync=30,
        async_=400,
        checkpointed_size=2_000_000,
        state_size=500_000_000,
        operators=(operator("source"), operator("count")),
    )
    return replace(usual, **values)


def expired(**values: Any) -> CheckpointFacts:
    return checkpoint(**{"status": "FAILED", "failure": EXPIRED, "lasted": 60_000, **values})


def facts(asked: CheckpointFacts | None = None, config: dict[str, Any] | None = None, **values: Any) -> DiagnosisFacts:
    """Return facts. `config` overrides usual values of the checkpoint configuration; `keys` has further settings."""
    keys = values.pop("keys", {})
    defaults = {
        "now": NOW,
        "checkpoint": asked,
        "normal": USUAL,
        "settings": Settings.read({**CONFIG, **(config or {})}, keys),
        "engine": "flink",
        "version": (2, 3),
        "run_started_at": NOW - timedelta(hours=5),
        "last_triggered_at": NOW - timedelta(seconds=8),
    }
    return DiagnosisFacts(**{**defaults, **values})


def thrown(text: str, stacktrace: str = "", seconds_ago: float = 65) -> Raised:
    return Raised(NOW - timedelta(seconds=seconds_ago), text, stacktrace, "count (2/4)", "10.0.0.7:41231")
