"""A dead job back exactly once, whatever happens meanwhile: random stories, judged after every step.

FIRE_EXAMPLES=200 (`make chaos`) tries as many of them. A story that fails is printed as it was; FIRE_SHRINK=1 looks for
a shorter one, for many minutes.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.monitoring.fire.machine import FireMachine

MANY = "FIRE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("FIRE_EXAMPLES", "6"))
PHASES = (Phase.generate, *((Phase.shrink,) if "FIRE_SHRINK" in os.environ else ()))


@pytest.mark.django_db
@pytest.mark.long
@pytest.mark.timeout(max(900, EXAMPLES * 20))
def test_a_dead_job_comes_back_exactly_once_under_fire() -> None:
    run_state_machine_as_test(
        FireMachine,
        settings=settings(
            max_examples=EXAMPLES,
            phases=PHASES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            derandomize=not MANY,  # the same few for everybody; new ones by `make chaos`
            print_blob=True,
        ),
    )
    seen = FireMachine.seen
    print(f"{EXAMPLES} stories: {dict(sorted(seen.items()))}")
    if MANY:  # of a few, chance may make none eventful
        assert seen["automatic launches"] >= EXAMPLES / 2, seen
        assert seen["killed"] >= EXAMPLES / 4, seen
