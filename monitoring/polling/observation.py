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
    LaunchWait,
    ManagerConfig,
    OperatorSubtasks,
    Overview,
    OwnEnd,
    Vertex,
)
from monitoring.engine.evidence import ClusterAnswer
from monitoring.engine.identity import Identity
from monitoring.polling.known import KnownCluster
from monitoring.reasons.reason import Reason


@dataclass(frozen=True)
class CheckpointReading:
    """One checkpoint's details. `stats` None: the engine has forgotten it. `complete`: every operator was read, or is
    forgotten, so that there is nothing more to ask for."""

    stats: CheckpointStats | None
    operators: Mapping[str, OperatorSubtasks] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True)
class RunObservation:
    """None: not read this time, because it was not due or because of `problem`; `checkpoints` also where the answer was
    the one that is stored. `digest`: of the answer that `checkpoints` was read from. `listed`: by id what the engine
    lists of the checkpoints of which there is something to write: its entry is not stored yet, or figures were read.
    `launch_wait` was read with `vertices`: where these are there, None says that the job does not wait."""

    job: JobOverview
    due: bool
    vertices: tuple[Vertex, ...] | None = None
    own_end: OwnEnd | None = None
    launch_wait: LaunchWait | None = None
    job_config: JobConfig | None = None
    config: CheckpointConfig | None = None
    checkpoints: Checkpoints | None = None
    digest: int | None = None
    listed: Mapping[int, CheckpointStats] = field(default_factory=dict)
    readings: Mapping[int, CheckpointReading] = field(default_factory=dict)
    exceptions: tuple[JobException, ...] | None = None
    problem: Reason | str = ""


@dataclass(frozen=True)
class ClusterObservation:
    """`known`: what decided what was read, with what was looked up on the way.

    `runs`: those of which there is something to write. `missing`: ids that the engine should have named and did not.
    `problem`: a job in the list that could not be read. `manager`: what the job manager says of itself; None: not asked
    for, or not told. `stranger`: it is not the cluster that is known, and nothing it says is evidence of these jobs.
    """

    answer: ClusterAnswer
    known: KnownCluster
    overview: Overview | None = None
    manager: ManagerConfig | None = None
    runs: Mapping[str, RunObservation] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    stranger: Identity | None = None
    problem: Reason | str = ""
