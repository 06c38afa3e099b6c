"""In application mode a cluster ends with its job, and a command starts the next cluster: exactly one."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from monitoring.alerts.fleet import Fleet
from monitoring.models import (
    AuditEntry,
    Cluster,
    Incident,
    Job,
    RestartAttempt,
    RestartDecision,
    RunState,
    Savepoint,
)
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery import moving
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.manual import RestartRefused, restart_from
from monitoring.recovery.moving import CLAIM
from monitoring.recovery.stages.check_state import CheckState
from monitoring.recovery.stages.start_job import StartJob
from monitoring.recovery.stages.stop_job import StopJob
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.stops import HOLD_DOWN
from tests.monitoring.conftest import Rows
from tests.monitoring.fake_job_manager import serving
from tests.monitoring.recovery.application.conftest import CHECKPOINT, died, only_job, restarted
from tests.monitoring.recovery.application.fake_application import FakeApplication
from tests.monitoring.recovery.test_exactly_once import Killed, kill_at
from tests.monitoring.savepoints.snapshots import lay_down

pytestmark = pytest.mark.django_db
# Its checkpoint ID is 5.
SAVEPOINT = "2.3.0-rocksdb-0b-savepoint-canonical"


@pytest.mark.parametrize("fixes_id", [True, False])
def test_a_job_whose_end_the_platform_reports_gets_one_new_cluster(job, application, waymark, report, fixes_id):
    job.launch = {"kind": "command", "command": application.command(fixes_id=fixes_id)}
    job.save()
    first, was = job.current_run, only_job(application)
    died(application, waymark, job)
    assert not job.restart_attempts.exists(), "silence proves nothing"
    report("FAILED", was)
    attempt = restarted(job, waymark)
    assert [savepoint for savepoint, _ in application.launches()] == ["", CHECKPOINT]
    job.refresh_from_db()
    assert job.current_run == attempt.new_run != first
    assert job.current_run.engine_job_id == only_job(application) == attempt.engine_job_id
    first.refresh_from_db()
    assert first.state == RunState.FAILED
    entry = AuditEntry.objects.get(action="cluster.same")
    assert (entry.actor, "6001" in entry.details["was"], "6002" in entry.details["now"]) == ("waymark", True, True)
    waymark.until("the new cluster is polled", lambda: Cluster.objects.get().reachable)


def test_the_rules_of_a_job_are_evaluated_when_its_cluster_has_ended(job, application, waymark, report):
    Job.objects.update(auto_restart=False)
    was = only_job(application)
    died(application, waymark, job)
    assert job.cluster_id in Fleet.read(waymark.now()).frozen
    report("FAILED", was)
    waymark.until("the end is known", lambda: Job.objects.filter(current_run__state="FAILED").exists())
    assert job.cluster_id not in Fleet.read(waymark.now()).frozen


def test_a_failure_that_a_poll_has_seen_needs_no_other_word(job, application, waymark):
    """No other job manager can take the job over: the cluster is not highly available."""
    application.jobs[only_job(application)].state = "FAILED"
    waymark.until("it is seen", lambda: Job.objects.filter(current_run__state="FAILED").exists())
    application.end("FAILED")
    restarted(job, waymark)
    assert len(application.launches()) == 2


def test_a_platform_that_has_started_the_job_again_is_not_overtaken(job, application, waymark, report):
    was = only_job(application)
    died(application, waymark, job)
    Job.objects.update(auto_restart=False)
    report("FAILED", was)
    waymark.until("the end is known", lambda: Job.objects.filter(current_run__state="FAILED").exists())
    report("RECONCILING", "cd" * 16)
    Job.objects.update(auto_restart=True)
    waymark.ahead += timedelta(minutes=5)
    decided = RestartDecision.objects.filter(job=job, reason=str(RecoveryReason.CLUSTER_SILENT()))
    waymark.until("it is decided", decided.exists)
    assert not job.restart_attempts.exists()
    job = Job.objects.select_related("cluster", "current_run").get()
    with pytest.raises(RestartRefused):
        restart_from(job, CHECKPOINT, "ada", waymark.now())


STAGES = (CheckState, StopJob, StartJob)
ALWAYS = [(StartJob, "plan", True), (StartJob, "conclude", False), (moving, "call_all", True)]
POINTS = [
    *((stage, name, after) for stage in STAGES for name in ("plan", "conclude") for after in (False, True)),
    (moving, "call_all", False),
]


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [*ALWAYS, *(pytest.param(*point, marks=pytest.mark.nightly) for point in POINTS if point not in ALWAYS)],
)
def test_a_worker_killed_at_any_point_causes_one_cluster(
    job, application, waymark, report, monkeypatch, owner, name, after
):
    """If the worker died between its intent and the command, the platform shows that nothing was started."""
    was = only_job(application)
    died(application, waymark, job)
    report("FAILED", was)
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, after)
        with pytest.raises(Killed):
            waymark.until("it dies", lambda: None)
    waymark.ahead += CLAIM
    if (owner, name, after) == (StartJob, "plan", True):
        waymark.ahead += TIME_LIMIT

    def runs() -> bool:
        report.is_read()
        return Job.objects.filter(current_run__state="RUNNING").exclude(current_run=job.current_run).exists()

    waymark.until("it runs again", runs)
    assert [savepoint for savepoint, _ in application.launches()] == ["", CHECKPOINT]


def test_a_cluster_that_never_answers_is_not_started_twice(job, application, waymark, report):
    was = only_job(application)
    application.answers_from = 10_000
    died(application, waymark, job)
    report("FAILED", was)
    attempt = waymark.until("it is restarted", lambda: job.restart_attempts.first())
    waymark.until("the command ran", lambda: len(application.launches()) == 2)
    waymark.ahead += TIME_LIMIT + timedelta(minutes=1)
    waymark.ended(attempt)
    assert attempt.state == "failed"
    assert Incident.objects.filter(kind="not_restarted").exists()
    waymark.ahead += TIME_LIMIT
    waymark.until("it is polled", lambda: Cluster.objects.filter(next_poll_at__gt=waymark.now()).exists())
    assert RestartAttempt.objects.count() == 1
    application.answers_from = 0
    waymark.until("the late cluster is not overlooked", lambda: Cluster.objects.get().stranger)
    assert len(application.launches()) == 2


def test_an_attempt_follows_its_cluster_to_another_address(job, application, waymark, report):
    """Discovery changes the address and forgets the identity (reconciling.py)."""
    job.launch = {"kind": "command", "command": application.command(fixes_id=False)}
    job.save()
    was = only_job(application)
    application.answers_from = 10_000
    died(application, waymark, job)
    report("FAILED", was)
    waymark.until("the command ran", lambda: len(application.launches()) == 2)
    elsewhere = FakeApplication(started=application.started, read=[application.started / "0"], now=waymark.now)
    with serving(elsewhere):
        report("RECONCILING", "cd" * 16)
        values = {"rest_url": elsewhere.url, "identity": None, "stranger": None, "next_poll_at": None}
        Cluster.objects.update(**values)
        attempt = restarted(job, waymark)
        assert attempt.engine_job_id == only_job(elsewhere)
        assert len(application.launches()) == 2


def test_another_cluster_that_is_no_application_is_not_accepted(job, application, waymark, report):
    was = only_job(application)
    died(application, waymark, job)
    report("FAILED", was)
    application.target = "kubernetes-session"
    waymark.until("the command ran", lambda: len(application.launches()) == 2)
    attempt = job.restart_attempts.get()
    waymark.until("it waits", lambda: "Another cluster answers" in str(attempt.steps.last().text))
    assert not AuditEntry.objects.filter(action="cluster.same").exists()


def test_a_restart_by_a_person_continues_from_the_savepoint_of_the_stop(job, application, waymark, settings, tmp_path):
    """The cluster ends before the result of the stop could be read."""
    settings.STATE_ROOTS = (str(tmp_path),)
    attempt = restart_from(job, None, "ada", waymark.now())
    waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
    taken = lay_down(SAVEPOINT, tmp_path / "savepoints" / f"savepoint-{job.current_run.engine_job_id[:6]}-0123456789ab")
    assert Job.objects.get().current_run.state == "RUNNING"
    waymark.ahead += HOLD_DOWN
    waymark.ended(attempt)
    assert attempt.state == "succeeded", attempt.error
    assert application.launches()[1:] == [(f"file:{taken}", attempt.engine_job_id)]
    assert list(job.runs.order_by("number").values_list("state", flat=True)) == ["FINISHED", "RUNNING"]
    assert Savepoint.objects.get().path == f"file:{taken}"


def test_a_cluster_that_ends_right_before_the_launch_is_replaced(job, application, waymark, monkeypatch):
    """The stage has seen the end of the job, and the poller has not."""
    application.shows_savepoint = True
    real = StartJob.plan

    def plan(stage: StartJob, attempt: RestartAttempt, now: datetime) -> object:
        if application.up and len(application.launches()) == 1:
            application.end("FINISHED")
        return real(stage, attempt, now)

    monkeypatch.setattr(StartJob, "plan", plan)
    attempt = waymark.ended(restart_from(job, None, "ada", waymark.now()))
    assert attempt.state == "succeeded", attempt.error
    assert (len(application.launches()), attempt.launches) == (2, 1)


def test_a_stop_whose_savepoint_is_nowhere_starts_nothing(job, application, waymark, settings, tmp_path):
    settings.STATE_ROOTS = (str(tmp_path),)
    old = lay_down(SAVEPOINT, tmp_path / "savepoints" / f"savepoint-{job.current_run.engine_job_id[:6]}-0123456789ab")
    Rows(now=waymark.now()).checkpoint(job.current_run, 9, external_path=CHECKPOINT)
    attempt = restart_from(job, None, "ada", waymark.now())
    waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
    waymark.ahead += HOLD_DOWN
    waymark.ended(attempt)
    assert attempt.state == "failed"
    assert f"no savepoint of the stop in file:{tmp_path}/savepoints" in attempt.error
    assert len(application.launches()) == 1
    assert old.exists()
    waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="CANCELED").exists())
    job = Job.objects.select_related("cluster", "current_run").get()
    chosen = waymark.ended(restart_from(job, CHECKPOINT, "ada", waymark.now()))
    assert chosen.state == "succeeded", chosen.error


@pytest.mark.parametrize("is_application", [True, False])
def test_a_stop_that_was_ordered_explains_the_silence_of_an_application(job, application, waymark, is_application):
    if not is_application:
        application.config.pop("execution.target")
        Cluster.objects.update(identity=None, version="")
        waymark.until("its configuration is read", lambda: Cluster.objects.get().identity)
    application.shows_savepoint = True
    savepoint = request_savepoint(job, "manual", "ada", waymark.now(), stops_job=True)
    waymark.until("the savepoint is complete", lambda: Savepoint.objects.get().state == "completed")
    application.end("FINISHED")
    if is_application:
        waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="FINISHED").exists())
        waymark.until("the silence is explained", lambda: not Fleet.read(waymark.now()).frozen)
    else:
        waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
        assert Fleet.read(waymark.now()).frozen
    assert savepoint.job == job
