"""An application cluster ends with a canceled job: silence after an accepted request to cancel is the job's end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from monitoring.models import Cluster, Outage, Run, RunStateChange
from monitoring.reasons.engines import EngineReason

pytestmark = pytest.mark.django_db
HOLD_DOWN_S = 30


@pytest.fixture
def later(poll) -> Callable[[float], object]:
    """Return a function that polls the cluster so many seconds later. A silent one would be polled less often."""

    def polled(after_s: float) -> None:
        Cluster.objects.update(next_poll_at=None)
        poll(after_s)

    return polled


@pytest.fixture
def job(engine, cluster):
    configure(engine)
    return engine.job()


def configure(engine, **settings: str) -> None:
    config = {"jobmanager.rpc.address": "127.0.0.1", "execution.target": "embedded", **settings}
    engine.instead["/jobmanager/config"] = [{"key": key, "value": value} for key, value in config.items()]


def accepted(poll) -> None:
    """Store that the cluster accepted a request to cancel the run now."""
    Run.objects.update(cancel_accepted_at=poll.clock)


def silence(engine) -> None:
    engine.down_with = (502, "Bad Gateway")


def state() -> str:
    return Run.objects.get().state


def test_silence_after_an_accepted_request_is_the_end(engine, job, poll, later):
    later(20)
    accepted(poll)
    silence(engine)
    later(2)
    silent_since = poll.clock
    later(HOLD_DOWN_S - 1)
    assert state() == "RUNNING"
    later(1)
    run = Run.objects.get()
    assert (run.state, run.ended_at, run.end_seen_at) == ("CANCELED", silent_since, poll.clock)
    assert RunStateChange.objects.get(target="CANCELED").why_value.code is EngineReason.CANCELED
    assert Outage.objects.get().ended_at == poll.clock, "the silence is explained"
    assert Cluster.objects.get().has_ended


def test_another_job_manager_has_the_time_to_take_the_job_over(engine, job, poll, later):
    configure(engine, **{"high-availability.type": "kubernetes", "kubernetes.cluster-id": "orders"})
    later(20)
    accepted(poll)
    silence(engine)
    later(2)
    later(HOLD_DOWN_S + 14)
    assert state() == "RUNNING"
    later(1)
    assert state() == "CANCELED"


def test_a_request_without_a_stored_answer_proves_nothing(engine, job, poll, later):
    """The worker was killed before the answer, the answer was lost, or the cluster refused the request."""
    later(20)
    silence(engine)
    later(2)
    later(3600)
    assert state() == "RUNNING"
    assert Outage.objects.get().ended_at is None


@pytest.mark.parametrize("status", [401, 503])
def test_a_server_that_may_be_a_job_manager_is_not_silent(engine, job, poll, later, status):
    """Credentials are refused, or a job manager starts: it may take the job over."""
    later(20)
    accepted(poll)
    engine.down_with = (status, "The leader is not known yet.")
    later(2)
    later(3600)
    assert state() == "RUNNING"


def test_a_job_that_goes_on_running_after_the_request_has_not_ended_when_it_is_silent_later(engine, job, poll, later):
    later(20)
    accepted(poll)
    later(HOLD_DOWN_S + 1)
    silence(engine)
    later(2)
    later(3600)
    assert state() == "RUNNING"
    assert Outage.objects.get().ended_at is None


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_job_that_was_being_canceled_for_long_ends_with_the_silence(engine, job, poll, later, is_ordered):
    """`is_ordered`: the request was Waymark's, and not of Flink's command line."""
    later(20)
    if is_ordered:
        accepted(poll)
    job.state = "CANCELLING"
    later(3600)
    silence(engine)
    later(2)
    later(HOLD_DOWN_S)
    assert state() == "CANCELED"


def test_a_silence_that_began_before_the_request_counts_from_the_request(engine, job, poll, later):
    later(20)
    silence(engine)
    later(HOLD_DOWN_S)
    accepted(poll)
    later(HOLD_DOWN_S - 1)
    assert state() == "RUNNING"
    later(1)
    assert state() == "CANCELED"


def test_a_cluster_that_does_not_end_with_its_job_is_only_silent(engine, job, poll, later):
    configure(engine, **{"execution.target": "kubernetes-session"})
    later(20)
    accepted(poll)
    silence(engine)
    later(2)
    later(3600)
    assert state() == "RUNNING"


def test_a_job_that_is_listed_again_runs(engine, job, poll, later):
    """The silence was that of the network, and the request came to nothing."""
    later(20)
    accepted(poll)
    silence(engine)
    later(2)
    later(HOLD_DOWN_S)
    assert state() == "CANCELED"
    engine.down_with = None
    later(60)
    assert state() == "RUNNING"
    silence(engine)
    later(2)
    later(3600)
    assert state() == "RUNNING"


def test_the_end_is_that_of_the_run_whose_request_was_accepted(engine, job, poll, later):
    """The job was deployed again at the same address, and every deployment has the same job ID."""
    later(20)
    accepted(poll)
    silence(engine)
    later(2)
    later(HOLD_DOWN_S)
    engine.down_with, engine.jobs = None, []
    engine.job(id=job.id, started=round((poll.clock + timedelta(seconds=1)).timestamp() * 1000))
    later(2)
    silence(engine)
    later(2)
    later(3600)
    assert list(Run.objects.order_by("number").values_list("state", flat=True)) == ["CANCELED", "RUNNING"]


@pytest.mark.parametrize(("goes_on", "end"), [(False, "CANCELED"), (True, "LOST")])
def test_a_canceled_job_that_another_cluster_no_longer_knows_is_not_lost(engine, job, poll, later, goes_on, end):
    """The cluster does not end with the job, and its job manager was restarted."""
    configure(engine, **{"execution.target": "kubernetes-session"})
    engine.job(name="other")
    later(20)
    accepted(poll)
    if goes_on:
        later(HOLD_DOWN_S + 1)
    engine.jobs.remove(job)
    later(2)
    later(HOLD_DOWN_S)
    run = Run.objects.get(engine_job_id=job.id)
    assert run.state == end
    assert run.state_changes.first().why_value.code is (EngineReason.JOB_UNKNOWN if goes_on else EngineReason.CANCELED)
