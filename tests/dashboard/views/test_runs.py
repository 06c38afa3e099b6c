"""The page with the runs of a job, and the action that runs the job again."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from monitoring.models import Job, RestartAttempt, RunState, Savepoint
from tests.monitoring.conftest import Rows
from tests.monitoring.recovery.conftest import LAUNCH

OUTCOME = {"saved": True, "savepoint": "file:/sp/end", "state": "file:/sp/end", "rows": 12345, "batches": 2}


@pytest.fixture
def rows(db: None) -> Rows:
    return Rows(timezone.now())


@pytest.fixture
def ended(rows: Rows) -> Job:
    job = rows.job(name="daily", launch=LAUNCH)
    rows.run(job, RunState.FAILED, outcome={}, exception="ValueError: no such column")
    rows.run(job, RunState.FINISHED, outcome=OUTCOME, restored_path="file:/sp/before")
    return job


def page(client, name: str, job: Job) -> str:
    return client.get(reverse(name, args=[job.pk])).content.decode()


def test_each_run_shows_when_it_ran_what_it_did_and_how_it_ended(operator, ended, rows):
    savepoint = Savepoint.objects.create(
        job=ended,
        run=ended.current_run,
        origin="final",
        state="completed",
        path="/sp/end",
        requested_at=rows.now,
        checkpoint=rows.checkpoint(ended.current_run, 7),
    )

    text = page(operator, "job-runs", ended)

    assert "12,345" in text
    assert f'<a href="{reverse("savepoint", args=[savepoint.pk])}">final savepoint 7</a>' in text
    assert 'class="path">before</span>' in text
    assert "ValueError: no such column" in text
    assert "no schedule" in text


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (OUTCOME, "The final savepoint is complete. The next run starts from it."),
        (OUTCOME | {"savepoint": ""}, "The run processed no new batch. The next run starts from the same savepoint"),
        (OUTCOME | {"savepoint": "", "state": ""}, "The job has processed no batch yet. The next run starts without"),
        (OUTCOME | {"saved": False, "savepoint": ""}, "The final savepoint failed, so the checkpoints of the run are"),
    ],
)
def test_the_heading_says_where_the_next_run_starts(operator, ended, outcome, expected):
    run = ended.current_run
    run.outcome = outcome
    run.save()
    assert expected in page(operator, "job", ended)
    page(operator, "job-runs", ended)


def test_the_heading_says_why_a_run_waits_to_start(operator, rows):
    job = rows.job(name="queued", launch=LAUNCH)
    wait = {"for": "starts", "asked": 9, "free": 0, "limit": 4, "position": 2, "length": 5, "since": None}
    rows.run(job, RunState.CREATED, launch_wait=wait)

    text = page(operator, "job", job)

    assert "Waiting to start." in text
    assert "Other drivers are starting; at most 4 start at a time. Position in the queue: 2 of 5." in text


def test_the_heading_shows_the_preparation_of_the_environment_with_pips_output(operator, rows):
    job = rows.job(name="preparing", launch=LAUNCH)
    since = rows.ago(200).isoformat()
    wait = {"for": "environment", "kind": "requirements", "step": "installing", "since": since}
    run = rows.run(job, RunState.CREATED, launch_wait=wait)
    first = page(operator, "job", job)

    assert "The Python environment is being prepared: pip installs the requirements." in first
    assert f'Waiting for <time datetime="{since}" data-age' in first
    assert "pip's output" not in first.replace("&#x27;", "'")
    assert "preparation failed" not in first

    run.launch_wait = {**wait, "output": "Collecting <pandas>", "failure": "pip could not reach its index: refused"}
    run.save()
    second = page(operator, "job", job)
    assert "<code>Collecting &lt;pandas&gt;</code>" in second
    assert "An earlier preparation failed: pip could not reach its index: refused" in second
    operator.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    assert "正在准备 Python 环境：pip 正在安装依赖。" in page(operator, "job", job)


def test_a_job_that_has_not_run_says_how_to_start_it(operator, rows):
    assert "No run yet" in page(operator, "job-runs", rows.job())


def test_run_again_starts_a_run_from_the_final_savepoint(operator, ended):
    assert reverse("job-run-again", args=[ended.pk]) in page(operator, "job", ended)

    answer = operator.post(reverse("job-run-again", args=[ended.pk]))

    attempt = RestartAttempt.objects.get()
    assert answer.url == reverse("restart-progress", args=[attempt.pk])
    assert (attempt.trigger, attempt.restore_path) == ("again", "file:/sp/end")
    assert reverse("job-run-again", args=[ended.pk]) not in page(operator, "job", ended), "one at a time"


def test_a_job_that_runs_is_not_run_again(operator, ended, rows):
    rows.run(ended, RunState.RUNNING)
    assert reverse("job-run-again", args=[ended.pk]) not in page(operator, "job", ended)

    answer = operator.post(reverse("job-run-again", args=[ended.pk]), follow=True)

    shown = answer.content.decode().replace("&#x27;", "")
    assert "The job was not started. state is RUNNING: the job is still running." in shown
    assert not RestartAttempt.objects.exists()


def test_a_schedule_of_runs_is_saved_and_shown(operator, ended):
    typed = {"max_restarts_per_hour": 6, "max_restarts_per_day": 24, "restore_from": "newest", "labels": ""}
    address = reverse("job-automation", args=[ended.pk])
    wrong = operator.post(address, typed | {"run_schedule": "every night"})
    assert "run_schedule" in wrong.context["form"].errors
    zone = operator.post(address, typed | {"run_schedule": "0 3 * * *", "run_time_zone": "Mars"})
    assert list(zone.context["form"].errors) == ["run_time_zone"]

    operator.post(address, typed | {"run_schedule": " 0  3 * * *", "run_time_zone": "Asia/Shanghai"})

    ended.refresh_from_db()
    assert (ended.run_cron, ended.run_time_zone) == ("0 3 * * *", "Asia/Shanghai")
    assert ended.next_run_at > timezone.now()
    assert "at 03:00 every day (Asia/Shanghai)" in page(operator, "job-runs", ended)
    operator.post(address, typed)
    ended.refresh_from_db()
    assert (ended.run_cron, ended.next_run_at) == ("", None)


def test_a_run_that_was_not_started_is_explained(operator, ended):
    Job.objects.filter(pk=ended.pk).update(run_problem="The run that was due at 03:00 was not started: it was late")
    assert "The run that was due at 03:00 was not started" in page(operator, "job-runs", ended)
