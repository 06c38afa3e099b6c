"""The advice for a configuration, with its boundaries, and none for a well configured job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitoring.diagnosis.signs import advices
from tests.monitoring.diagnosis.builders import USUAL, facts

GB = 1024**3
NO_LOCAL = {"state.backend.local-recovery": "FALSE"}
FULL = replace(USUAL, state_size=GB, checkpointed_size=0.8 * GB)


def names(of) -> list[str]:
    return [each.name for each in advices(of)]


def test_a_well_set_job_gets_no_advice() -> None:
    assert names(facts()) == []
    assert names(facts(config={"num_retained": 3}, keys={"execution.state-recovery.from-local": "true"})) == []


def test_unknown_settings_cause_no_advice() -> None:
    assert names(facts(config=dict.fromkeys(("interval", "timeout", "mode", "externalization", "min_pause")))) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"normal": replace(USUAL, duration=10_000)}, ["interval_too_short"]),
        ({"normal": replace(USUAL, duration=9_999)}, []),
        ({"normal": replace(USUAL, duration=10_000), "config": {"min_pause": 5000}}, []),
        ({"normal": replace(USUAL, duration=10_000), "config": {"min_pause": 4999}}, ["interval_too_short"]),
        ({"normal": replace(USUAL, duration=10_000, count=4)}, []),
        ({"normal": replace(USUAL, duration_p95=36_000)}, ["timeout_near"]),
        ({"config": {"interval": None}}, ["no_periodic_checkpoints"]),
        ({"config": {"interval": None}, "runs": False}, []),
        ({"config": {"num_retained": 1}}, ["one_retained"]),
        ({"config": {"num_retained": 2}}, []),
        ({"keys": {"state.checkpoints.num-retained": "1"}}, ["one_retained"]),
        ({"config": {"externalization": {"enabled": False}}}, ["not_kept"]),
        ({"has_savepoint_schedule": False}, ["no_savepoint_schedule"]),
        ({"has_savepoint_schedule": False, "manages_savepoints": False}, []),
        ({"recent_failures": 1, "recent_restarts": 1}, ["no_tolerance"]),
        ({"recent_failures": 1, "recent_restarts": 0}, []),
        ({"recent_failures": 0, "recent_restarts": 4}, []),
        ({"recent_failures": 9, "recent_restarts": 9, "config": {"tolerable_failed_checkpoints": 1}}, []),
        ({"keys": {"restart-strategy.type": "none"}}, ["no_restart"]),
        ({"keys": {"restart-strategy": "Restart deactivated."}}, ["no_restart"]),
        ({"keys": {"restart-strategy.type": "none"}, "manages_restarts": True}, []),
        ({"keys": {"restart-strategy": "Cluster level default restart strategy"}}, []),
        ({"normal": FULL}, ["big_state_full"]),
        ({"normal": replace(FULL, state_size=GB - 1)}, []),
        ({"normal": replace(FULL, checkpointed_size=0.79 * GB)}, []),
        (
            {"normal": replace(FULL, checkpointed_size=1), "keys": {"state.backend.local-recovery": "FALSE"}},
            ["no_local_recovery"],
        ),
        ({"keys": NO_LOCAL}, []),  # the state is small
        ({"config": {"mode": "at_least_once"}}, ["at_least_once"]),
    ],
)
def test_each_advice_at_its_boundary(values, expected) -> None:
    assert names(facts(**values)) == expected


@pytest.mark.parametrize(
    ("values", "key", "value"),
    [
        ({"normal": replace(USUAL, duration=12_000)}, "execution.checkpointing.min-pause", "15 s"),
        ({"config": {"num_retained": 1}}, "execution.checkpointing.num-retained", "3"),
        ({"config": {"num_retained": 1}, "version": (1, 19)}, "state.checkpoints.num-retained", "3"),
        ({"normal": FULL, "version": (1, 20)}, "execution.checkpointing.incremental", "true"),
        ({"recent_failures": 1, "recent_restarts": 1}, "execution.checkpointing.tolerable-failed-checkpoints", "3"),
    ],
)
def test_an_advice_names_the_exact_key_and_a_value(values, key: str, value: str) -> None:
    (found,) = advices(facts(**values))
    assert (found.advice[0].key, found.advice[0].value) == (key, value)


def test_the_most_important_advice_is_first() -> None:
    wrong = facts(config={"num_retained": 1, "mode": "at_least_once"}, normal=replace(USUAL, duration=12_000))
    assert names(wrong) == ["interval_too_short", "one_retained", "at_least_once"]
