"""Builders of observations of runs, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from monitoring.engine.answers import (
    CheckpointConfig,
    Checkpoints,
    Counts,
    JobConfig,
    JobException,
    JobOverview,
    Vertex,
)
from monitoring.models import Run
from monitoring.polling.observation import RunObservation
from tests.monitoring.conftest import NOW


@pytest.fixture
def overview() -> Callable[[Run], JobOverview]:
    return lambda run: JobOverview(run.engine_job_id, run.job.name, run.state, run.started_at, None)


@pytest.fixture
def reported(overview: Callable[[Run], JobOverview]) -> Callable[..., tuple[Run, RunObservation]]:
    """Return a function that pairs a run with an observation of it, as in `reported(run, vertices=…)`."""
    return lambda run, **read: (run, RunObservation(overview(run), due=True, **read))


def counted(**values: int) -> Checkpoints:
    zero = dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), 0)
    return Checkpoints(Counts(**{**zero, **values}), {}, (), (), None)


def failure(seconds_ago: float = 5, **values: Any) -> JobException:
    usual = {
        "name": "java.io.IOException",
        "message": "the sink is gone",
        "stacktrace": "java.io.IOException: Could not write\n\tat x\nCaused by: java.lang.Exception: the sink is gone",
        "task": "Sink: routes (2/4)",
        "host": "tm-1:40123",
        "headline": "Could not write",
    }
    return JobException(**{**usual, "at": NOW - timedelta(seconds=seconds_ago), **values})


def checkpointing(**values: Any) -> CheckpointConfig:
    raw = {"mode": "exactly_once", "interval": 10_000, "externalization": {"enabled": True}, **values}
    return CheckpointConfig(10_000, 600_000, 0, 1, 0, retained_on_cancellation=True, raw=raw)


def execution(**values: Any) -> JobConfig:
    return JobConfig(
        **{"restart_strategy": "fixed-delay", "parallelism": 2, "user_config": {}, "launch": None, **values}
    )


def vertex(name: str, parallelism: int) -> Vertex:
    return Vertex("0" * 32, name, parallelism, "RUNNING")
