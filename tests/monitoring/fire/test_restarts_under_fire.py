"""A dead job back exactly once, whatever happens meanwhile: random stories, judged after every step.

FIRE_EXAMPLES=200 (`make chaos`) tries as many of them.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.monitoring.fire.machine import FireMachine

EXAMPLES = int(os.environ.get("FIRE_EXAMPLES", "6"))


@pytest.mark.django_db
@pytest.mark.timeout(max(300, EXAMPLES * 20))
def test_a_dead_job_comes_back_exactly_once_under_fire() -> None:
    run_state_machine_as_test(
        FireMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            derandomize="FIRE_EXAMPLES" not in os.environ,  # the same few for everybody; new ones by `make chaos`
            print_blob=True,
        ),
    )
    seen = FireMachine.seen
    print(f"{EXAMPLES} stories: {dict(sorted(seen.items()))}")
    assert seen["automatic launches"] >= EXAMPLES / 2, seen
    assert seen["killed"] >= EXAMPLES / 4, seen
