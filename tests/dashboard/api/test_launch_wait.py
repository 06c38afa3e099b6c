"""The API returns why a run waits for the start of its driver."""

from __future__ import annotations

from django.utils import timezone

from monitoring.models import RunState
from tests.dashboard.api.conftest import Caller
from tests.monitoring.conftest import Rows
from tests.monitoring.recovery.conftest import LAUNCH


def test_a_run_that_waits_has_the_reason_as_a_code_and_as_a_sentence(api: Caller) -> None:
    rows = Rows(timezone.now())
    job = rows.job(name="preparing", launch=LAUNCH)
    wait = {"for": "environment", "kind": "requirements", "step": "installing", "output": "Collecting pandas"}
    run = rows.run(job, RunState.CREATED, launch_wait=wait)

    text = "The Python environment is being prepared: pip installs the requirements."
    assert api.get(f"/runs/{run.pk}").json()["launch_wait"] == {**wait, "sentence": text}
    (listed,) = api.get(f"/jobs/{job.pk}/runs").json()["items"]
    assert listed["launch_wait"]["sentence"] == text


def test_a_run_that_does_not_wait_has_no_reason(api: Caller) -> None:
    rows = Rows(timezone.now())
    run = rows.run(rows.job(name="running", launch=LAUNCH))
    assert api.get(f"/runs/{run.pk}").json()["launch_wait"] == {}
