"""The results of one flight (one poll of one cluster) as plain values, also after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    Position,
    Vertex,
)
from monitoring.engine.evidence import ClusterAnswer
from monitoring.engine.identity import Identity
from monitoring.polling.known import KnownCluster
from monitoring.reasons.reason import Reason


@dataclass(frozen=True)
class CheckpointReading:
    """The details of one checkpoint.

    `stats` is None if the engine has forgotten it. `complete`: every operator was read or is forgotten, so that nothing
    more can be read.
    """

    stats: CheckpointStats | None
    operators: Mapping[str, OperatorSubtasks] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True)
class RunObservation:
    """The result for one run. A part is None if it was not read, because it was not due or because of `problem`.

    `checkpoints` is also None if the answer is the stored one. `digest`: the digest of the answer with `checkpoints`.
    `listed`: by ID, the engine's entries of checkpoints that must be stored, because the entry is new or figures were
    read. `launch_wait` is read together with `vertices`: if these are not None, None means that the job does not wait.
    """

    job: JobOverview
    due: bool
    vertices: tuple[Vertex, ...] | None = None
    own_end: OwnEnd | None = None
    launch_wait: LaunchWait | None = None
    position: Position | None = None
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
    """The result for one cluster. `known`: the copy of the rows that decided what was read, with later look-ups.

    `runs`: runs with something to store. `missing`: IDs that the engine should have listed but did not. `problem`: a
    job in the list that could not be parsed. `manager`: the job manager's configuration; None: not requested or not
    shown. `stranger`: another cluster answered, so that its answers prove nothing about these jobs. `scan`: the new
    progress of the scan of a directory, None for a server. `runs` of a silent cluster are from its History Server.
    """

    answer: ClusterAnswer
    known: KnownCluster
    overview: Overview | None = None
    manager: ManagerConfig | None = None
    runs: Mapping[str, RunObservation] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    stranger: Identity | None = None
    problem: Reason | str = ""
    scan: Mapping[str, Any] | None = None
