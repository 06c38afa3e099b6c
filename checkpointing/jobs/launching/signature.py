"""What must be known of a job before its JVM starts: a spare driver fits every job with the same signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpointing.configuration import InvalidConfiguration
from checkpointing.jobs.driver_spec import DriverSpec
from checkpointing.jobs.launching.deployment import MASTER, ClusterManager, deployment_of

# Settings that a session takes in while it runs. What is not surely one of them counts as needed at the start.
_TAKEN_IN_LATER = ("spark.sql.shuffle.", "spark.sql.adaptive.", "spark.sql.session.", "spark.sql.streaming.")
_NEEDED_AT_THE_START = ("spark.sql.streaming.streamingQueryListeners", "spark.sql.streaming.ui.")


@dataclass(frozen=True)
class Signature:
    master: str
    settings: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


def signature_of(spec: DriverSpec) -> Signature | None:
    """None for a job that no spare can wait for: on a cluster it would hold executors that others need."""
    try:
        deployment = deployment_of(spec.configuration, parallelism=spec.parallelism)
    except InvalidConfiguration:
        return None
    if deployment.manager is not ClusterManager.LOCAL:
        return None
    settings = {
        key: value
        for key, value in spec.configuration.items()
        if key.startswith("spark.") and key != MASTER and not is_taken_in_later(key)
    }
    return Signature(deployment.master, _sorted(settings), _sorted(spec.environment))


def is_taken_in_later(key: str) -> bool:
    return key.startswith(_TAKEN_IN_LATER) and not key.startswith(_NEEDED_AT_THE_START)


def _sorted(items: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(items.items()))
