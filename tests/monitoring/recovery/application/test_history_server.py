"""The History Server shows the end of an application that no platform reports, as its REST API would have shown it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.fleet import Fleet
from monitoring.engine.identity import application_in
from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Incident,
    Job,
    OperatorCheckpoint,
    RestartAttempt,
    Run,
)
from monitoring.polling import archives, store
from monitoring.polling.claim import LEASE
from monitoring.reasons.engines import EngineReason
from tests.monitoring.fake_job_manager import serving
from tests.monitoring.flink.waymark import Waymark
from tests.monitoring.recovery.application.conftest import died, is_silent, only_job, restarted
from tests.monitoring.recovery.application.fake_application import NAME, FakeApplication
from tests.monitoring.recovery.application.fake_history_server import (
    CAUSE,
    NUMBERS_FROM,
    FakeHistoryServer,
    newest_of_the_archive,
)
from tests.monitoring.recovery.test_exactly_once import Killed, kill_at

pytestmark = pytest.mark.django_db
OTHER_ID = "ab" * 16
Archived = Callable[..., None]


@pytest.fixture
def application(application: FakeApplication) -> FakeApplication:
    """Return an application whose job has run for a minute. Its REST API reports no exception."""
    application.age_s = 60
    application.answers["exceptions"] = (404, "Not found.")
    return application


@pytest.fixture
def archived(job: Job, application: FakeApplication, history: FakeHistoryServer) -> Archived:
    """Return a function with which Flink archives the job. The cluster of the job has a History Server."""
    Cluster.objects.update(history_server=history.url)
    job_id, started_at = only_job(application), application.started_at

    def archive(state: str = "FAILED") -> None:
        history.archive(job_id, NAME, started_at, state)

    return archive


def is_known(state: str) -> bool:
    return Job.objects.filter(current_run__state=state).exists()


def is_read(state: str) -> bool:
    return Job.objects.filter(current_run__state=state, current_run__final_read_done=True).exists()


def polls(waymark: Waymark, count: int = 2) -> None:
    """Wait for the next polls of a silent cluster. The clock advances, so that they are due."""
    for _ in range(count):
        failures = Cluster.objects.get().consecutive_failures
        waymark.ahead += timedelta(seconds=20)
        waymark.until("it is polled", lambda known=failures: Cluster.objects.get().consecutive_failures > known)


def test_a_failure_is_stored_as_if_the_engine_had_reported_it_and_the_job_is_restarted(
    job, application, waymark, history, archived
):
    died(application, waymark, job)
    polls(waymark)
    assert is_known("RUNNING"), "a History Server that does not know the job proves nothing"
    archived()
    Job.objects.update(auto_restart=False)
    waymark.until("its end is known", lambda: is_read("FAILED"))
    Job.objects.update(auto_restart=True)
    attempt = restarted(job, waymark)
    run = Run.objects.get(number=1)
    assert CAUSE in run.exceptions[0]["stacktrace"]
    assert CAUSE in run.exception
    assert run.counts["total"] == 11
    assert run.ended_at - run.started_at == timedelta(milliseconds=30_425)
    newest = run.checkpoints.filter(status=CheckpointStatus.COMPLETED).order_by("-checkpoint_id").first()
    assert (newest.checkpoint_id, newest.external_path) == (NUMBERS_FROM + 9, newest_of_the_archive())
    assert not run.checkpoints.filter(final=False).exists()
    assert OperatorCheckpoint.objects.filter(checkpoint_id=newest.pk).count() == 2
    (why,) = run.state_changes.filter(target="FAILED").values_list("why_value", flat=True)
    assert why.code is EngineReason.ARCHIVED
    assert attempt.restore_path == newest_of_the_archive()
    assert [savepoint for savepoint, _ in application.launches()] == ["", newest_of_the_archive()]


def test_the_failure_is_notified(job, application, waymark, archived):
    Job.objects.update(auto_restart=False)
    died(application, waymark, job)
    archived()
    waymark.until("its end is known", lambda: is_known("FAILED"))
    assert job.cluster_id not in Fleet.read(waymark.now()).frozen
    evaluate_due(waymark.now())
    assert CAUSE.rstrip(".") in Incident.objects.get(kind="job_failed").sentence


@pytest.mark.parametrize("state", ["CANCELED", "FINISHED"])
def test_an_intended_end_is_not_followed_by_a_restart(job, application, waymark, history, archived, state):
    died(application, waymark, job)
    archived(state)
    waymark.until("its end is known", lambda: is_read(state))
    asked = len(history.asked)
    polls(waymark, 3)
    assert Cluster.objects.get().has_ended
    assert not RestartAttempt.objects.exists()
    assert len(history.asked) == asked, "what is known is not requested again"


def _not_found(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (404, {"errors": ["File not found."]})


def _garbage(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, b"{")


def _web_page(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, b"<html>Log in</html>")


def _another_shape(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "state": "OVER"})


def _failure(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (500, {"errors": ["Internal server error."]})


def _another_job(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "jid": OTHER_ID})


def _another_name(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "name": "another job"})


def _running(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "state": "RUNNING", "end-time": -1})


def _suspended(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "state": "SUSPENDED"})


def _earlier_deployment(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "start-time": history.served[path]["start-time"] - 1})


def _later_deployment(history: FakeHistoryServer, path: str) -> None:
    history.overridden[path] = (200, {**history.served[path], "start-time": history.served[path]["start-time"] + 1})


def _away(history: FakeHistoryServer, path: str) -> None:
    history.up = False


PROVES_NOTHING = [
    *(_not_found, _garbage, _another_job, _another_name, _running, _earlier_deployment, _later_deployment, _away),
    *(pytest.param(each, marks=pytest.mark.nightly) for each in (_web_page, _another_shape, _failure, _suspended)),
]
UNREADABLE = (_garbage, _web_page, _another_shape, _failure, _away)


@pytest.mark.parametrize("wrong", PROVES_NOTHING)
def test_an_answer_that_proves_nothing_changes_nothing_and_is_requested_again(
    job, application, waymark, history, archived, wrong
):
    path = f"/jobs/{only_job(application)}"
    died(application, waymark, job)
    archived()
    wrong(history, path)
    polls(waymark)
    assert path in history.asked
    cluster = Cluster.objects.get()
    assert (is_known("RUNNING"), cluster.has_ended, RestartAttempt.objects.count()) == (True, False, 0)
    assert (cluster.last_error_value.code is EngineReason.WITHOUT_ARCHIVES) == (wrong in UNREADABLE)
    history.overridden, history.up = {}, True
    waymark.ahead += timedelta(seconds=20)
    restarted(job, waymark)
    assert len(application.launches()) == 2


def test_a_start_after_a_failover_is_of_the_run_that_shares_a_checkpoint(job, application, waymark, history, archived):
    path = f"/jobs/{only_job(application)}"
    died(application, waymark, job)
    archived()
    shared = history.served[f"{path}/checkpoints"]["history"][3]
    at = waymark.now().fromtimestamp(shared["trigger_timestamp"] / 1000, tz=waymark.now().tzinfo)
    Checkpoint.objects.create(
        run=job.current_run, checkpoint_id=shared["id"], triggered_at=at, status="COMPLETED", first_seen_at=at
    )
    _later_deployment(history, path)
    polls(waymark, 1)
    restarted(job, waymark)


def test_a_silent_history_server_does_not_delay_other_clusters(
    job, application, waymark, history, archived, monkeypatch
):
    monkeypatch.setattr(archives, "SOUGHT_FOR_S", 300.0)
    Cluster.objects.update(request_limit_s=300)
    died(application, waymark, job)
    archived()
    history.hangs = True
    with serving(FakeApplication(started=application.started, read=[*application.read])) as other:
        other.config, other.up = {}, True
        Cluster.objects.create(name="other", rest_url=other.url, poll_interval_s=1)
        asked = len(history.asked)
        waymark.ahead += timedelta(seconds=20)
        waymark.until("the History Server is asked", lambda: len(history.asked) > asked)
        failures = Cluster.objects.get(name="orders").consecutive_failures
        for _ in range(3):
            answered_at = Cluster.objects.get(name="other").last_answer_at
            waymark.ahead += timedelta(seconds=2)
            waymark.until(
                "the other is polled",
                lambda at=answered_at: Cluster.objects.exclude(last_answer_at=at).filter(name="other").exists(),
            )
        assert Cluster.objects.get(name="orders").consecutive_failures == failures, "its poll waits"
        history.hangs = False
        history.release.set()
        restarted(job, waymark)


def test_clusters_with_one_history_server_get_their_own_ends(job, application, waymark, history, archived, tmp_path):
    second = FakeApplication(started=tmp_path / "second", savepoint=application.savepoint, age_s=60)
    second.started.mkdir()
    with serving(second):
        Cluster.objects.create(name="second", rest_url=second.url, history_server=history.url, poll_interval_s=1)
        second.start(OTHER_ID)
        waymark.until("it is seen", lambda: Job.objects.filter(cluster__name="second", current_run__state="RUNNING"))
        second.end("CANCELED")
        application.end("FAILED")
        waymark.until("both are silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).count() == 2)
        history.archive(OTHER_ID, NAME, second.started_at, "CANCELED")
        archived()
        waymark.ahead += timedelta(seconds=20)
        restarted(job, waymark)
        waymark.until("the other end is known", lambda: is_known("CANCELED"))
    assert Run.objects.get(job=job, number=1).state == "FAILED"
    assert not Job.objects.get(cluster__name="second").restart_attempts.exists()
    assert len(second.launches()) == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_killed_before_the_end_is_stored_reads_it_again(
    job, application, waymark, archived, monkeypatch, after
):
    died(application, waymark, job)
    archived()
    with monkeypatch.context() as patch:
        kill_at(patch, store, "_end_reported", after)
        waymark.ahead += timedelta(seconds=20)
        with pytest.raises(Killed):
            waymark.until("it dies", lambda: None)
    assert is_known("RUNNING")
    waymark.ahead += LEASE
    with Waymark(skips_waits=True) as next_worker:
        restarted(job, next_worker)
    assert len(application.launches()) == 2
    assert Run.objects.filter(state="FAILED").count() == 1


def test_a_job_that_was_seen_to_fail_is_not_taken_over_if_it_is_archived(job, application, waymark, history, archived):
    """Another job manager could take the job over. Its last checkpoints were not read before the cluster ended."""
    application.config["high-availability.type"] = "kubernetes"
    Cluster.objects.update(identity=None, version="")
    waymark.until("its configuration is read", lambda: Cluster.objects.get().identity)
    assert application_in(Cluster.objects.get().identity).takeover_s > 0
    application.jobs[only_job(application)].state = "FAILED"
    waymark.until("it is seen", lambda: is_known("FAILED"))
    died(application, waymark, job)
    polls(waymark)
    assert (Cluster.objects.get().has_ended, RestartAttempt.objects.count()) == (False, 0)
    archived()
    Job.objects.update(auto_restart=False)
    waymark.ahead += timedelta(seconds=20)
    waymark.until("the silence is explained", lambda: Cluster.objects.get().has_ended and is_read("FAILED"))
    assert Run.objects.get().counts["total"] == 11
    asked = len(history.asked)
    polls(waymark, 3)
    assert (Cluster.objects.get().has_ended, len(history.asked)) == (True, asked)
    Job.objects.update(auto_restart=True)
    restarted(job, waymark)


def test_a_session_cluster_that_is_silent_does_not_end_with_its_job(job, application, waymark, archived):
    application.config.pop("execution.target")
    Cluster.objects.update(identity=None, version="")
    waymark.until("its configuration is read", lambda: Cluster.objects.get().identity)
    died(application, waymark, job)
    archived()
    waymark.until("its end is known", lambda: is_known("FAILED"))
    polls(waymark)
    assert (Cluster.objects.get().has_ended, RestartAttempt.objects.count()) == (False, 0)


def test_a_history_server_is_not_asked_about_a_cluster_that_answers(job, application, waymark, history, archived):
    archived()
    answered_at = Cluster.objects.get().last_answer_at
    waymark.ahead += timedelta(seconds=5)
    waymark.until("it is polled", lambda: Cluster.objects.get().last_answer_at > answered_at)
    assert not history.asked
    died(application, waymark, job)
    waymark.until("it is asked", lambda: history.asked)
    assert is_silent()
