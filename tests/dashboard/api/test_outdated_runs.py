"""A request may name the run that its sender saw, and is refused if the job has another current run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from monitoring.models import Job
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller
from tests.dashboard.views.test_outdated_pages import done, newest, replaced

Call = Callable[[str, int | None], tuple[bool, str]]
ACTS = ["restart", "launch", "stop", "act"]


@pytest.fixture
def call(api: Caller, job: Job, now: datetime) -> Call:
    assert job.current_run is not None
    make.make_savepoint(job.current_run, now - timedelta(minutes=5))

    def send(act: str, run: int | None) -> tuple[bool, str]:
        if act == "act":
            body = {"deed": "stop", "jobs": [job.pk], "run_ids": {str(job.pk): run}}
            outcome = api.post("/jobs/act", body).json()[0]
            return outcome["done"], outcome["text"]
        bodies: dict[str, Any] = {
            "restart": {"state": newest(job)},
            "launch": {"now": "replace", "state": "stop", "parallelism": 7},
        }
        answer = api.post(f"/jobs/{job.pk}/{act}", {"run_id": run, **bodies.get(act, {})})
        taken = answer.status_code == 202
        return taken, "" if taken else answer.json()["error"]["message"]

    return send


@pytest.mark.parametrize("act", [*ACTS, "cancel"])
def test_request_about_a_replaced_run_is_refused(call: Call, job: Job, now: datetime, act: str) -> None:
    old = job.current_run_id
    replaced(job, now)
    taken, why = call(act, old)
    assert not taken
    assert "Run 2 replaced run 1 20 min ago. Restart 1 (ada) started the new run." in why
    assert not done(job)


@pytest.mark.parametrize("act", ACTS)
def test_request_about_the_current_run_succeeds(call: Call, job: Job, act: str) -> None:
    assert call(act, job.current_run_id) == (True, "Stopping with a savepoint." if act == "act" else "")
    assert done(job)


@pytest.mark.parametrize("act", ["restart", "launch", "stop"])
def test_run_id_is_optional(call: Call, job: Job, now: datetime, act: str) -> None:
    replaced(job, now)
    assert call(act, None) == (True, "")
