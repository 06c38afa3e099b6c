"""The number of repetitions in tests, and the seed of random tests.

`WAYMARK_TESTS` is the profile: `ci` (`make test`: few repetitions, always with the same seed), `nightly`
(`make nightly`) or `chaos` (`make chaos`: hours). `WAYMARK_TESTS_SEED` repeats a run; pytest prints the seed at its
start.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

from hypothesis import settings

FLINK_VERSION = "2.3.0"
_FLINK_VERSIONS = (FLINK_VERSION, "1.20.5")
_EVERY_SINK = ("postgres@local", "files@local", "postgres@cluster", "files@cluster")


@dataclass(frozen=True)
class Profile:
    """The number of repetitions in tests.

    A test kills the job manager after every `kill_every` steps, and another one watches the checkpoints of a real Flink
    for `flink_s` seconds.
    """

    chaos_rounds: int = 2
    chaos_sinks: tuple[str, ...] = ("both@cluster",)
    snapshots_under_load: int = 3
    fire_scenarios: int = 6
    fire_rounds: int = 3
    fire_savepoints: int = 60
    kill_every: int = 10
    flink_versions: tuple[str, ...] = (FLINK_VERSION,)
    flink_s: float = 20
    wrong_answers: int = 6
    discovery_changes: int = 150


_NIGHTLY = Profile(
    chaos_rounds=2,
    chaos_sinks=_EVERY_SINK,
    snapshots_under_load=5,
    fire_scenarios=20,
    fire_rounds=6,
    fire_savepoints=120,
    kill_every=5,
    flink_versions=_FLINK_VERSIONS,
    flink_s=40,
    wrong_answers=60,
    discovery_changes=2_000,
)
_PROFILES = {
    "ci": Profile(),
    "nightly": _NIGHTLY,
    "chaos": replace(
        _NIGHTLY,
        chaos_rounds=20,
        snapshots_under_load=40,
        fire_scenarios=200,
        fire_rounds=30,
        fire_savepoints=500,
        kill_every=1,
        flink_s=180,
        wrong_answers=500,
        discovery_changes=10_000,
    ),
}
_CI_SEED = 1


def _named(name: str) -> Profile:
    if name not in _PROFILES:
        raise ValueError(f"WAYMARK_TESTS: {name!r} is not allowed; one of {', '.join(_PROFILES)}")
    return _PROFILES[name]


NAME = os.environ.get("WAYMARK_TESTS") or "ci"
PROFILE = _named(NAME)
IS_CI = NAME == "ci"
# xdist's workers inherit the seed of the first process.
SEED = int(os.environ.setdefault("WAYMARK_TESTS_SEED", str(_CI_SEED if IS_CI else random.randrange(1, 10**6))))

_CI_EXAMPLES_OF_100 = 25


def examples(number: int) -> int:
    """Return the number of hypothesis examples for a test that has `number` examples in the nightly run."""
    return number * _CI_EXAMPLES_OF_100 // 100 if IS_CI else number


settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, max_examples=examples(100))
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("ci" if IS_CI else "nightly")
