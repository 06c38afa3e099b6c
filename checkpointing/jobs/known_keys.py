"""The keys that a PySpark job's configuration may have where all of them are known: Flink's, and Waymark's own.

A misspelt key is a default that nobody asked for. What people enter is checked; a job manager takes any key, as Flink
does, so that a job whose record has an old mistake in it can still be brought back.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_environment import PREFIXES, JobEnvironment
from checkpointing.model.refusals import Refusal, Refused

DIRECTORY = "waymark.directory"
_BY_FAMILY = {
    "execution.checkpointing.": (
        *("interval", "timeout", "min-pause", "max-concurrent-checkpoints", "tolerable-failed-checkpoints", "mode"),
        *("externalized-checkpoint-retention", "num-retained", "dir", "savepoint-dir", "storage"),
    ),
    "execution.state-recovery.": ("path", "ignore-unclaimed-state", "claim-mode", "from-local", "from-shared"),
    "execution.sinks.": ("after-restore",),
    # Their names before Flink 2.
    "execution.savepoint": (".path", ".ignore-unclaimed-state", "-restore-mode"),
    "restart-strategy": (
        *("", ".type", ".fixed-delay.attempts", ".fixed-delay.delay"),
        *(".failure-rate.max-failures-per-interval", ".failure-rate.failure-rate-interval", ".failure-rate.delay"),
        *(".exponential-delay.initial-backoff", ".exponential-delay.max-backoff"),
        *(".exponential-delay.backoff-multiplier", ".exponential-delay.reset-backoff-threshold"),
        *(".exponential-delay.jitter-factor", ".exponential-delay.attempts-before-reset-backoff"),
    ),
    "waymark.": (
        *("allow-empty-start", "directory", "driver.memory", "driver.memory-limit", "executor-uploads.min-size"),
        *("kubernetes.run-as-user", "launcher", "priority"),
        *("python", "python.requirements", "python.archive"),
    ),
}
KNOWN_KEYS = frozenset(family + rest for family, names in _BY_FAMILY.items() for rest in names)


class UnknownKey(InvalidConfiguration, Refused):
    """Nobody reads `key`; `allowed` are those that may be meant."""

    def __init__(self, key: str, value: str, refusal: Refusal, **allowed: str) -> None:
        InvalidConfiguration.__init__(self, key, value, ", ".join(allowed.values()))
        Refused.__init__(self, refusal, key=key, **allowed)


def is_checked(key: str) -> bool:
    """Whether all keys that begin like it are known; of others (`spark.*`, `pipeline.*`) anything may be meant."""
    return key.startswith(tuple(_BY_FAMILY))


def check_keys(configuration: Mapping[str, str]) -> None:
    """Raise UnknownKey for the first one that nobody reads, with the nearest that somebody does.

    InvalidConfiguration: a variable of the job's environment cannot have that name, or its Python cannot be made so.
    """
    JobEnvironment.parse(configuration)
    EnvironmentSource.parse(configuration)
    for key, value in configuration.items():
        if not is_checked(key) or key in KNOWN_KEYS or key.startswith(PREFIXES):
            continue
        near = difflib.get_close_matches(key, KNOWN_KEYS, n=1, cutoff=0.85)
        if near:
            raise UnknownKey(key, value, Refusal.UNKNOWN_KEY_NEAR, near=near[0])
        family = next(family for family in _BY_FAMILY if key.startswith(family))
        keys = ", ".join(sorted(each for each in KNOWN_KEYS if each.startswith(family)))
        raise UnknownKey(key, value, Refusal.UNKNOWN_KEY, keys=keys)
