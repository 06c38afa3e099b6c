"""A canceled application cluster ends before a poll: the accepted request and the silence prove the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dashboard.acts import canceling
from dashboard.acts.canceling import CancelUnknown, NotCanceled, cancel_job
from dashboard.acts.intents import Intent
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.fleet import Fleet
from monitoring.models import Cluster, Incident, Job, RestartAttempt
from monitoring.recovery.manual import restart_from
from monitoring.savepoints.stops import HOLD_DOWN
from tests.monitoring.flink.waymark import Waymark
from tests.monitoring.recovery.application.conftest import CHECKPOINT, Report, is_silent, only_job, restarted
from tests.monitoring.recovery.test_exactly_once import Killed, kill_at

pytestmark = pytest.mark.django_db


def cancel(job: Job) -> None:
    """Cancel the job through the function of the page and of the API."""
    job = Job.objects.select_related("cluster", "current_run").get(pk=job.pk)
    cancel_job(job, "ada", "wrong input", Intent())


def an_hour_passes(waymark: Waymark) -> None:
    """Poll the cluster and evaluate all rules now and an hour later."""
    evaluate_due(waymark.now())
    waymark.ahead += timedelta(hours=1)
    waymark.until("it is polled", lambda: Cluster.objects.filter(next_poll_at__gt=waymark.now()).exists())
    evaluate_due(waymark.now())


def test_a_job_that_waymark_canceled_is_neither_restarted_nor_missed(job, application, waymark):
    cancel(job)
    waymark.until("it is silent", is_silent)
    waymark.ahead += HOLD_DOWN
    waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="CANCELED").exists())
    waymark.until("the silence is explained", lambda: not Fleet.read(waymark.now()).frozen)
    an_hour_passes(waymark)
    assert not RestartAttempt.objects.exists()
    assert not Incident.objects.exclude(kind="waymark_blind").exists(), "the clock of the worker jumped"


@pytest.mark.parametrize("why", ["killed", "lost", "refused", "keeps running"])
def test_a_cancellation_whose_effect_is_not_known_explains_no_silence(job, application, waymark, monkeypatch, why):
    """Nothing is restarted, as after any silence, and people are notified."""
    was = only_job(application)
    match why:
        case "killed":
            with monkeypatch.context() as patch:
                kill_at(patch, canceling, "call_all", True)
                with pytest.raises(Killed):
                    cancel(job)
        case "lost":
            application.loses_answer_of = {"cancel"}
            with pytest.raises(CancelUnknown):
                cancel(job)
        case "refused":
            application.answers["cancel"] = (400, "Job is not cancelable.")
            with pytest.raises(NotCanceled):
                cancel(job)
            application.end("FAILED")
        case "keeps running":
            application.cancels = False
            cancel(job)
            waymark.ahead += HOLD_DOWN + timedelta(seconds=1)
            since = waymark.now()
            waymark.until("it is listed", lambda: Cluster.objects.filter(read_until__gt=since).exists())
            application.end("FAILED")
    waymark.until("it is silent", is_silent)
    an_hour_passes(waymark)
    assert Job.objects.get().current_run.state == "RUNNING"
    assert not RestartAttempt.objects.exists()
    assert Incident.objects.filter(kind="cluster_unreachable").exists()
    Report(job.cluster, waymark)("FAILED", was)
    restarted(job, waymark)


def test_a_restart_that_cancels_the_job_starts_the_next_cluster(job, application, waymark):
    attempt = restart_from(job, CHECKPOINT, "ada", waymark.now(), stop_first=False)
    waymark.until("it is silent", is_silent)
    waymark.ahead += HOLD_DOWN
    waymark.ended(attempt)
    assert attempt.state == "succeeded", attempt.error
    assert application.launches()[1:] == [(CHECKPOINT, attempt.engine_job_id)]
    assert list(job.runs.order_by("number").values_list("state", flat=True)) == ["CANCELED", "RUNNING"]
