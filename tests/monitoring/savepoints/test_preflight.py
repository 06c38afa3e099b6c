from datetime import UTC, datetime

import pytest

from monitoring.models import RunState
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.savepoints.preflight import NotNow, PreflightFacts, Ready, preflight

LONG_AGO = datetime(2026, 11, 21, 3, 0, 9, tzinfo=UTC)
GOOD = {
    "run_state": RunState.RUNNING,
    "unseen_since": None,
    "cluster_reachable": True,
    "savepoint_under_way": False,
    "paused": None,
}


def test_a_running_job_on_a_cluster_that_answers_may_be_saved():
    assert preflight(PreflightFacts(**GOOD)) == Ready()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run_state": None}, Why.NEVER_RAN()),
        ({"run_state": RunState.RESTARTING}, Why.NOT_RUNNING(state="RESTARTING")),
        ({"cluster_reachable": False}, Why.CLUSTER_SILENT()),
        ({"unseen_since": LONG_AGO}, Why.UNSEEN(since=LONG_AGO)),
        ({"savepoint_under_way": True}, Why.UNDER_WAY()),
        ({"paused": AutomationReason.PAUSED()}, AutomationReason.PAUSED()),
    ],
)
def test_the_obstacle_to_a_savepoint_is_reported(change, reason):
    assert preflight(PreflightFacts(**{**GOOD, **change})) == NotNow(reason)


def test_the_time_is_rendered_in_utc():
    assert str(Why.UNSEEN(since=LONG_AGO)) == "the job has not been seen since 2026-11-21 03:00:09 UTC"


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_running_job_is_saved(state):
    assert isinstance(preflight(PreflightFacts(**{**GOOD, "run_state": state})), NotNow)
