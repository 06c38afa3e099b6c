"""The runs of a job that ends (none, a few, two pages), and the forms of its schedule, in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.urls import reverse

from monitoring.models import Engine, Job, Run, RunState, SavepointOrigin
from monitoring.recovery.run_schedule import set_run_schedule
from monitoring.savepoints.timetable import Cron
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.monitoring.recovery.conftest import LAUNCH

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]
RUNS = 60


def ended(job: Job, now: datetime, days: int, outcome: dict[str, object], state: str = RunState.FINISHED) -> Run:
    run = make.make_run(job, now, age=timedelta(days=days))
    Run.objects.filter(pk=run.pk).update(
        state=state,
        ended_at=run.started_at + timedelta(minutes=7 + days % 3, seconds=days),
        outcome=outcome,
        restored_path=f"file:/data/savepoints/savepoint-daily0-{days + 1:012x}",
    )
    return run


def daily(now: datetime, runs: int) -> Job:
    job = make.make_job(make.make_cluster(now, f"spark-{runs}", engine=Engine.SPARK), f"daily-{runs}")
    job.launch = LAUNCH
    job.save(update_fields=["launch"])
    for days in range(runs, 0, -1):
        path = f"file:/data/savepoints/savepoint-daily0-{days:012x}"
        done = {"saved": True, "savepoint": path, "state": path, "rows": 1_234_567 * (days % 5), "batches": days % 5}
        match days % 7:
            case 3:
                ended(job, now, days, {}, RunState.FAILED)
            case 4:
                ended(job, now, days, done | {"savepoint": "", "rows": 0, "batches": 0})
            case 5:
                ended(job, now, days, {"saved": False, "savepoint": "", "state": "", "rows": None, "batches": None})
            case _:
                run = ended(job, now, days, done)
                make.make_savepoint(run, now - timedelta(days=days), path=path)
    job.savepoints.update(origin=SavepointOrigin.FINAL)
    Run.objects.filter(job=job, state=RunState.FAILED).update(exception="ValueError: no such column: 'carier'")
    set_run_schedule(job, Cron("0 3 * * *", "Europe/Berlin"), "olga", now)
    job.refresh_from_db()
    return job


def test_pages_of_jobs_that_end(read_as: Callable[..., Reader], signs_of_life: None, now: datetime) -> None:
    none = make.make_job(make.make_cluster(now, "spark-0", engine=Engine.SPARK), "never-run")
    little, much = daily(now, 5), daily(now, RUNS)
    Job.objects.filter(pk=much.pk).update(
        run_problem="The run that was due at 2026-11-25 02:00 UTC was not started: state is RUNNING: the job is "
        "still running. Wait until it ends, or restart it from a savepoint."
    )
    pages = {
        "none": reverse("job-runs", args=[none.pk]),
        "little": reverse("job-runs", args=[little.pk]),
        "much": reverse("job-runs", args=[much.pk]),
        "overview": reverse("job", args=[little.pk]),
        "configuration": reverse("job-configuration", args=[little.pk]),
        "retention": reverse("job-retention", args=[much.pk]),
        "savepoints": reverse("job-savepoints", args=[much.pk]),
        "rule": reverse("rule-new", args=["run_missed"]),
    }
    check_pages(read_as(), pages, "runs-")
