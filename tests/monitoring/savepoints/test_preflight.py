from datetime import UTC, datetime

import pytest

from monitoring.models import RunState
from monitoring.savepoints.preflight import NotNow, PreflightFacts, Ready, preflight

GOOD = {
    "run_state": RunState.RUNNING,
    "unseen_since": None,
    "cluster_reachable": True,
    "savepoint_under_way": False,
    "paused": "",
}


def test_a_running_job_on_a_cluster_that_answers_may_be_saved():
    assert preflight(PreflightFacts(**GOOD)) == Ready()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run_state": None}, "the job has never run"),
        ({"run_state": RunState.RESTARTING}, "the job is RESTARTING, not RUNNING"),
        ({"cluster_reachable": False}, "the cluster does not answer"),
        (
            {"unseen_since": datetime(2026, 11, 21, 3, 0, 9, tzinfo=UTC)},
            "the job has not been seen since 2026-11-21 03:00:09 UTC",
        ),
        ({"savepoint_under_way": True}, "a savepoint is already under way"),
        ({"paused": "its automation is paused"}, "its automation is paused"),
    ],
)
def test_what_stands_against_it_is_said(change, reason):
    assert preflight(PreflightFacts(**{**GOOD, **change})) == NotNow(reason)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_running_job_is_saved(state):
    assert isinstance(preflight(PreflightFacts(**{**GOOD, "run_state": state})), NotNow)
