"""The schedule of a job starts its next application cluster after an end that the engine did not report."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.models import Job, Savepoint
from monitoring.recovery.run_schedule import set_run_schedule
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.timetable import Cron
from tests.monitoring.recovery.application.conftest import CHECKPOINT, died, only_job, restarted

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("proof", ["stop", "platform"])
def test_a_run_starts_after_an_end_that_a_stop_or_the_platform_proves(job, application, waymark, report, proof):
    Job.objects.update(auto_restart=False)
    state = CHECKPOINT
    if proof == "stop":
        application.shows_savepoint = True
        request_savepoint(job, "manual", "ada", waymark.now(), stops_job=True)
        waymark.until("the savepoint is complete", lambda: Savepoint.objects.get().state == "completed")
        application.end("FINISHED")
        state = Savepoint.objects.get().path
    else:
        was = only_job(application)
        died(application, waymark, job)
        report("FAILED", was)
    ended = Job.objects.filter(current_run__state__in=("FINISHED", "FAILED"))
    waymark.until("its end is known", ended.exists)
    set_run_schedule(ended.get(), Cron("* * * * *"), "ada", waymark.now())
    waymark.ahead += timedelta(minutes=1)
    attempt = restarted(job, waymark)
    assert attempt.trigger == "scheduled"
    assert application.launches()[1:] == [(state, attempt.engine_job_id)]
