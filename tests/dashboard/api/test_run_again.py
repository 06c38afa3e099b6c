"""The API runs an ended job again and sets its run schedule."""

from __future__ import annotations

import pytest
from django.utils import timezone

from monitoring.models import Job, RestartAttempt, RunState
from tests.dashboard.api.conftest import Caller
from tests.monitoring.conftest import Rows
from tests.monitoring.recovery.conftest import LAUNCH

OUTCOME = {"saved": True, "savepoint": "file:/sp/end", "state": "file:/sp/end", "rows": 9, "batches": 1}


@pytest.fixture
def rows(db: None) -> Rows:
    return Rows(timezone.now())


@pytest.fixture
def daily(rows: Rows) -> Job:
    return rows.job(name="daily", launch=LAUNCH)


def test_a_job_that_has_ended_is_run_again_from_where_it_ended(api: Caller, daily: Job, rows: Rows) -> None:
    run = rows.run(daily, RunState.FINISHED, outcome=OUTCOME)
    assert api.post(f"/jobs/{daily.pk}/run-again", {"run_id": run.pk + 1}).status_code == 409

    answer = api.post(f"/jobs/{daily.pk}/run-again", {"run_id": run.pk})

    assert answer.status_code == 202, answer.content
    assert (answer.json()["trigger"], RestartAttempt.objects.get().restore_path) == ("again", "file:/sp/end")
    assert api.get(f"/runs/{run.pk}").json()["outcome"] == OUTCOME


def test_a_job_that_runs_is_not_run_again(api: Caller, daily: Job, rows: Rows) -> None:
    rows.run(daily)
    answer = api.post(f"/jobs/{daily.pk}/run-again")
    error = answer.json()["error"]
    assert (answer.status_code, "the job is still running" in error["message"]) == (409, True)
    assert error["reason"]["code"] == "recovery.bad-state"
    assert error["reason"]["args"]["allowed"] == {"code": "recovery.still-runs", "args": {}}
    assert not RestartAttempt.objects.exists()


def test_run_schedule_is_saved_and_returned(api: Caller, daily: Job) -> None:
    sent = {"run_schedule": "0 3 * * *", "run_time_zone": "Europe/Berlin"}
    body = api.send("patch", f"/jobs/{daily.pk}/automation", sent).json()
    assert (body["run_schedule"], body["next_run_at"] is None) == ("at 03:00 every day (Europe/Berlin)", False)
    assert api.send("patch", f"/jobs/{daily.pk}/automation", {"run_schedule": "nightly"}).status_code == 422
