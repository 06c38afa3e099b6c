"""The properties of a job that its JVM needs at the start. A spare driver fits every job with the same signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checkpointing.jobs.launching.deployment import MASTER, ClusterManager, deployment_of
from checkpointing.jobs.launching.python import python_of
from checkpointing.model.configuration import CheckpointConfiguration, InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import JobEnvironment

# Settings that a running session accepts. All others count as needed at the start.
_APPLIED_LATER = ("spark.sql.shuffle.", "spark.sql.adaptive.", "spark.sql.session.", "spark.sql.streaming.")
_NEEDED_AT_THE_START = ("spark.sql.streaming.streamingQueryListeners", "spark.sql.streaming.ui.")

HEARTBEAT = "spark.executor.heartbeatInterval"


@dataclass(frozen=True)
class Signature:
    master: str
    python: str
    settings: tuple[tuple[str, str], ...]
    environment: tuple[tuple[tuple[str, str], ...], ...] = field(repr=False)


def signature_of(spec: DriverSpec) -> Signature | None:
    """Return the job's signature, or None if no spare driver can wait for the job.

    On a cluster a spare driver would hold executors that other jobs need. The secrets of a job may also be unknown,
    because another job manager started its driver.
    """
    try:
        deployment = deployment_of(spec.configuration, parallelism=spec.parallelism)
        heartbeat = heartbeat_of(spec.configuration)
    except InvalidConfiguration:
        return None
    if deployment.manager is not ClusterManager.LOCAL or spec.environment.is_hidden:
        return None
    settings = {
        key: value
        for key, value in spec.configuration.items()
        if key.startswith("spark.") and key != MASTER and not is_applied_later(key)
    }
    with_defaults = {HEARTBEAT: heartbeat} | settings
    return Signature(deployment.master, python_of(spec.configuration), _sorted(with_defaults), _all(spec.environment))


def heartbeat_of(configuration: Mapping[str, str]) -> str:
    """Return the default of HEARTBEAT, which depends on the checkpoint timeout. Raise InvalidConfiguration."""
    return f"{CheckpointConfiguration.parse(configuration).executor_heartbeat_ms}ms"


def is_applied_later(key: str) -> bool:
    return key.startswith(_APPLIED_LATER) and not key.startswith(_NEEDED_AT_THE_START)


def _sorted(items: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(items.items()))


def _all(environment: JobEnvironment) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(map(_sorted, (environment.variables, environment.secrets, environment.secret_files)))
