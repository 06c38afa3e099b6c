"""The API returns which queries write rows a second time, before a restart and in the response to a restart."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from monitoring.models import Job, Run, RunState
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller
from tests.monitoring.recovery.test_rows_written_again import SINKS

AGAIN = [{"query": "words", "sink": "kafka"}]


@pytest.fixture
def older(job: Job, now: datetime) -> str:
    """Return the key of a savepoint after which the job's run has written rows."""
    run = make.make_run(job, now, vertices=SINKS)
    return f"savepoint-{make.make_savepoint(run, now - timedelta(minutes=9)).pk}"


def test_states_and_restart_responses_list_rows_written_again(api: Caller, job: Job, older: str) -> None:
    states = {each["key"]: each["written_again"] for each in api.get(f"/jobs/{job.pk}/restart-states").json()}
    assert (states[older], states["stop"]) == (AGAIN, [])
    answer = api.post(f"/jobs/{job.pk}/restart", {"state": older})
    assert (answer.status_code, answer.json()["written_again"]) == (202, AGAIN)


def test_run_again_response_lists_rows_written_again(api: Caller, job: Job, older: str, now: datetime) -> None:
    Run.objects.filter(pk=job.runs.latest("number").pk).update(state=RunState.FAILED, ended_at=now)
    answer = api.post(f"/jobs/{job.pk}/run-again")
    assert (answer.status_code, answer.json()["written_again"]) == (202, AGAIN)
