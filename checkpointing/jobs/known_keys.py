"""The known keys of a PySpark job's configuration, in families whose keys are all known: Flink's and Waymark's own.

A misspelt key would silently select a default, so the keys that people enter are checked. A job manager accepts any
key, as Flink does, so that a job with an old mistake in its record can still be restarted.
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
    # Names that Flink 1 used for keys of Flink 2.
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
    """No code reads `key`. `allowed` has the keys that the person may have meant."""

    def __init__(self, key: str, value: str, refusal: Refusal, **allowed: str) -> None:
        InvalidConfiguration.__init__(self, key, value, ", ".join(allowed.values()))
        Refused.__init__(self, refusal, key=key, **allowed)


def is_checked(key: str) -> bool:
    """Return whether `check_keys` checks this key. It does not check keys of other systems, such as `spark.*`."""
    return key.startswith(tuple(_BY_FAMILY))


def check_keys(configuration: Mapping[str, str]) -> None:
    """Raise UnknownKey for the first key that no code reads, with the nearest known key.

    Raise InvalidConfiguration if a variable of the job's environment cannot have its name, or if the settings of its
    Python environment are not valid.
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
