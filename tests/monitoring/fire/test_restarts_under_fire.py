"""A dead job back exactly once, whatever happens meanwhile: random stories, judged after every step.

A story that fails is printed as it was: to look for a shorter one takes many minutes (Phase.shrink).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.monitoring.fire.machine import FireMachine
from tests.profile import IS_CI, PROFILE

STORIES = PROFILE.fire_stories


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.long
@pytest.mark.timeout(max(900, STORIES * 20))
def test_a_dead_job_comes_back_exactly_once_under_fire() -> None:
    run_state_machine_as_test(
        FireMachine,
        settings=settings(
            max_examples=STORIES,
            phases=(Phase.generate,),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
    seen = FireMachine.seen
    print(f"{STORIES} stories: {dict(sorted(seen.items()))}")
    if not IS_CI:  # of a few, chance may make none eventful
        assert seen["automatic launches"] >= STORIES / 2, seen
        assert seen["killed"] >= STORIES / 4, seen
