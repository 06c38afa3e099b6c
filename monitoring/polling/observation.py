"""What one flight over one cluster brought back: values only, however the flight ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitoring.engine.answers import (
    CheckpointConfig,
    Checkpoints,
    CheckpointStats,
    JobConfig,
    JobException,
    JobOverview,
    OperatorSubtasks,
    Overview,
    Vertex,
)
from monitoring.engine.evidence import ClusterAnswer


@dataclass(frozen=True)
class CheckpointReading:
    """One checkpoint's details. `stats` None: the engine has forgotten it. `complete`: every operator was read, or is
    forgotten, so that there is nothing more to ask for."""

    stats: CheckpointStats | None
    operators: Mapping[str, OperatorSubtasks] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True)
class RunObservation:
    """None: not read this time, because it was not due or because of `problem`."""

    job: JobOverview
    due: bool
    vertices: tuple[Vertex, ...] | None = None
    job_config: JobConfig | None = None
    config: CheckpointConfig | None = None
    checkpoints: Checkpoints | None = None
    readings: Mapping[int, CheckpointReading] = field(default_factory=dict)
    exceptions: tuple[JobException, ...] | None = None
    problem: str = ""


@dataclass(frozen=True)
class ClusterObservation:
    answer: ClusterAnswer
    overview: Overview | None = None
    runs: Mapping[str, RunObservation] = field(default_factory=dict)
