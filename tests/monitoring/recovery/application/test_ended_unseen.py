"""A cluster that a command has started may end before a poll: the platform or the History Server shows its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from monitoring.models import Cluster, Incident, Job, LaunchVersion, RestartAttempt
from monitoring.recovery.attempt import TIME_LIMIT
from tests.monitoring.conftest import Rows
from tests.monitoring.flink.waymark import Waymark
from tests.monitoring.recovery.application.conftest import CHECKPOINT, Report, died, only_job, restarted
from tests.monitoring.recovery.application.fake_application import NAME, FakeApplication
from tests.monitoring.recovery.application.fake_history_server import FakeHistoryServer

pytestmark = pytest.mark.django_db
ERROR = "The program's main method caused an error"


@pytest.fixture
def attempt(job: Job, application: FakeApplication, waymark: Waymark, report: Report) -> RestartAttempt:
    """Return a restart whose command was run. The started cluster never answers."""
    application.answers_from = 10_000
    was = only_job(application)
    died(application, waymark, job)
    report("FAILED", was)
    return started(job, application, waymark)


def started(job: Job, application: FakeApplication, waymark: Waymark, launches: int = 2) -> RestartAttempt:
    attempt = waymark.until("it is restarted", lambda: job.restart_attempts.first())
    waymark.until("the command ran", lambda: len(application.launches()) == launches)
    return attempt


def is_still_awaited(attempt: RestartAttempt, waymark: Waymark) -> bool:
    """Return whether another look at the platform has not ended the attempt."""
    waymark.ahead += timedelta(seconds=5)
    waymark.until("it looks again", lambda: RestartAttempt.objects.filter(next_step_at__gt=waymark.now()).exists())
    attempt.refresh_from_db()
    return attempt.ended_at is None


@pytest.fixture(params=["operator", pytest.param("yarn", marks=pytest.mark.nightly), "history server"])
def ends(
    request,
    job: Job,
    application: FakeApplication,
    waymark: Waymark,
    report: Report,
    history: FakeHistoryServer,
) -> Callable[..., None]:
    """Return a function with which the platform reports the end of the newest cluster, or Flink archives it."""
    if request.param == "history server":
        Cluster.objects.update(history_server=history.url)

    def reports(attempt: RestartAttempt, state: str = "FAILED", error: str = ERROR) -> None:
        match request.param:
            case "operator":
                report(state, attempt.engine_job_id, error)
            case "yarn":
                report.yarn("application_1_2", waymark.now(), {"FINISHED": "SUCCEEDED"}.get(state, state), error)
            case "history server":
                history.archive_early_end(attempt.engine_job_id, NAME, waymark.now().timestamp(), state, error)
        application.end(state)
        application.answers_from = 0

    return reports


def test_a_failure_ends_the_restart_and_is_a_run_of_its_own(job, application, waymark, attempt, ends):
    ends(attempt)
    waymark.ended(attempt)
    assert attempt.state == "failed"
    assert ERROR in attempt.error
    run = job.runs.get(number=2)
    assert (run, run.engine_job_id, run.state) == (attempt.new_run, attempt.engine_job_id, "FAILED")
    assert ERROR in run.exception
    assert Job.objects.get().current_run == run
    assert LaunchVersion.objects.filter(runs=run).exists()
    assert Incident.objects.filter(kind="not_restarted").exists()


def test_the_failed_cluster_is_followed_by_another_one(job, application, waymark, attempt, ends):
    ends(attempt)
    waymark.ended(attempt)
    waymark.ahead += timedelta(minutes=1)
    waymark.until("it is restarted again", lambda: RestartAttempt.objects.count() == 2)
    second = waymark.ended(RestartAttempt.objects.latest("epoch"))
    assert second.state == "succeeded", second.error
    assert [savepoint for savepoint, _ in application.launches()] == ["", CHECKPOINT, CHECKPOINT]
    assert list(job.runs.order_by("number").values_list("state", flat=True)) == ["FAILED", "FAILED", "RUNNING"]


def test_a_failure_that_is_reported_after_the_time_limit_allows_the_next_restart(
    job, application, waymark, attempt, ends
):
    waymark.ahead += TIME_LIMIT + timedelta(minutes=1)
    waymark.ended(attempt)
    assert attempt.state == "failed"
    ends(attempt)
    waymark.until("it is restarted again", lambda: RestartAttempt.objects.count() == 2)
    second = waymark.ended(RestartAttempt.objects.latest("epoch"))
    assert second.state == "succeeded", second.error
    assert len(application.launches()) == 3


def test_a_job_that_finished_is_not_restarted(job, application, waymark, attempt, ends):
    ends(attempt, "FINISHED", "")
    waymark.ended(attempt)
    assert attempt.state == "succeeded"
    assert Job.objects.get().current_run.state == "FINISHED"
    waymark.ahead += TIME_LIMIT
    waymark.until("it is polled", lambda: Cluster.objects.filter(next_poll_at__gt=waymark.now()).exists())
    assert (RestartAttempt.objects.count(), len(application.launches())) == (1, 2)


def test_a_snapshot_that_the_cluster_misses_is_replaced_by_the_next_one(
    job, application, waymark, report, attempt, ends
):
    """The end of the first cluster is not that of the second one."""
    older = "file:/checkpoints/chk-3"
    Rows(now=waymark.now()).checkpoint(job.runs.get(number=1), 3, external_path=older)
    ends(attempt, error=f"Cannot find checkpoint or savepoint file/directory '{CHECKPOINT}'")
    application.answers_from = 10_000
    waymark.until("the next cluster is started", lambda: len(application.launches()) == 3)
    assert is_still_awaited(attempt, waymark)
    application.answers_from = 0
    waymark.ended(attempt)
    assert attempt.state == "succeeded", attempt.error
    assert [savepoint for savepoint, _ in application.launches()] == ["", CHECKPOINT, older]


def test_clusters_that_share_a_job_id_are_told_apart_by_their_start(job, application, waymark, report, attempt):
    old = job.runs.get(number=1)
    report("FAILED", old.engine_job_id, "It is written again.", old.started_at)
    assert is_still_awaited(attempt, waymark)
    report("FAILED", old.engine_job_id, ERROR, waymark.now())
    application.end("FAILED")
    application.answers_from = 0
    waymark.ended(attempt)
    assert (attempt.state, attempt.new_run.number) == ("failed", 2)
    assert list(job.runs.order_by("number").values_list("engine_job_id", "superseded")) == [
        (old.engine_job_id, True),
        (old.engine_job_id, False),
    ]
    waymark.ahead += timedelta(minutes=1)
    waymark.until("it is restarted again", lambda: RestartAttempt.objects.count() == 2)
    second = waymark.ended(RestartAttempt.objects.latest("epoch"))
    assert (second.state, second.new_run.number) == ("succeeded", 3), second.error


@pytest.mark.parametrize("says", ["the old end", "a job that may live"])
def test_other_reports_end_no_restart(job, application, waymark, report, attempt, says):
    if says == "the old end":
        report("FAILED", job.runs.get(number=1).engine_job_id, "It is written again.")
    else:
        report("RECONCILING", attempt.engine_job_id)
    assert is_still_awaited(attempt, waymark)
    application.answers_from = 0
    restarted(job, waymark)
    assert len(application.launches()) == 2
