"""A dead job restarts exactly once under random sequences of faults, which are checked after every step.

A failing sequence is printed without shrinking it (Phase.shrink), which would take many minutes.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.monitoring.fire.machine import FireMachine
from tests.profile import IS_CI, PROFILE

SCENARIOS = PROFILE.fire_scenarios


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.long
@pytest.mark.timeout(max(900, SCENARIOS * 20))
def test_a_dead_job_is_restarted_exactly_once_under_fire() -> None:
    run_state_machine_as_test(
        FireMachine,
        settings=settings(
            max_examples=SCENARIOS,
            phases=(Phase.generate,),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
    seen = FireMachine.seen
    print(f"{SCENARIOS} stories: {dict(sorted(seen.items()))}")
    if not IS_CI:  # a few random sequences may all be without events
        assert seen["automatic launches"] >= SCENARIOS / 2, seen
        assert seen["killed"] >= SCENARIOS / 4, seen
