"""A highly available Flink that is stored by address: a death is held down while the next leader may revoke it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from kazoo.client import KazooClient

from monitoring.engine import high_availability
from monitoring.engine.identity import identity_of
from monitoring.models import Cluster, Job, RestartAttempt, RestartTrigger, Run
from monitoring.recovery.attempt import open_attempt
from monitoring.recovery.cycle import advance

pytestmark = pytest.mark.usefixtures("cycles_take_no_time")

KUBERNETES = {"high-availability.type": "kubernetes", "kubernetes.cluster-id": "fraud", "kubernetes.namespace": "prod"}
# The hold-down with Kubernetes: a lease of 15 s, plus a margin.
HELD = timedelta(seconds=45)


@pytest.fixture
def flink(job: Job, job_manager, now: datetime) -> Job:
    """Return a Flink job whose death was just polled."""
    Cluster.objects.filter(pk=job.cluster_id).update(engine="flink")
    Run.objects.filter(pk=job.current_run_id).update(ended_at=now, end_seen_at=now)
    job_manager.config = dict(KUBERNETES)
    return Job.objects.select_related("cluster", "current_run").get(pk=job.pk)


@pytest.fixture
def restart(flink: Job, now: datetime) -> Callable[[RestartTrigger], RestartAttempt]:
    def decide(trigger: RestartTrigger = RestartTrigger.AUTOMATIC) -> RestartAttempt:
        return open_attempt(
            flink, trigger, "it died", "ada", now, restore_path="file:/chk/7", restore_is_savepoint=False
        )

    return decide


def waits(attempt: RestartAttempt) -> str:
    attempt.refresh_from_db()
    return attempt.steps.get(name="Stop the job").text


@pytest.mark.parametrize("trigger", list(RestartTrigger))
@pytest.mark.parametrize("gone", [False, True])
def test_on_kubernetes_nothing_is_started_within_lease_and_margin(flink, restart, job_manager, now, trigger, gone):
    if gone:
        job_manager.jobs.clear()
    attempt = restart(trigger)
    for seconds in (3, 20, 44):
        advance(now + timedelta(seconds=seconds))
    assert job_manager.count("run") == 0
    assert waits(attempt).startswith(
        "The job has ended, but the next leader may start it again: this Flink is highly available (kubernetes)"
    )
    assert f"waits until {now + HELD:%H:%M:%S}" in waits(attempt)
    advance(now + HELD + timedelta(seconds=5))
    assert job_manager.count("run") == 1


def test_the_margin_is_a_setting(restart, job_manager, settings, now):
    settings.HA_MARGIN = timedelta()
    restart()
    advance(now + timedelta(seconds=14))
    assert job_manager.count("run") == 0
    advance(now + timedelta(seconds=20))
    assert job_manager.count("run") == 1


def test_a_job_that_the_next_leader_recovers_is_not_restarted(flink, restart, job_manager, now):
    attempt = restart()
    advance(now + timedelta(seconds=3))
    job_manager.jobs[flink.current_run.engine_job_id].state = "RUNNING"
    advance(now + HELD + timedelta(seconds=5))
    attempt.refresh_from_db()
    assert (attempt.state, job_manager.count("run")) == ("canceled", 0)
    assert "The job is still active" in attempt.error


@pytest.mark.parametrize("wished", ["CANCELED", "FINISHED"])
def test_a_requested_end_is_not_held_down(flink, restart, job_manager, now, wished):
    job_manager.jobs[flink.current_run.engine_job_id].state = wished
    restart()
    advance(now + timedelta(seconds=3))
    assert job_manager.count("run") == 1


@pytest.mark.parametrize("config", [None, {}, {"high-availability.type": "NONE"}])
def test_without_high_availability_there_is_no_hold_down(restart, job_manager, now, config):
    job_manager.config = config
    restart()
    advance(now + timedelta(seconds=3))
    assert job_manager.count("run") == 1


@pytest.mark.parametrize("status", [403, 405])
def test_an_engine_that_does_not_show_its_configuration_is_not_waited_for(restart, job_manager, now, status):
    job_manager.answers["config"] = (status, "not here")
    restart()
    advance(now + timedelta(seconds=3))
    assert job_manager.count("run") == 1


@pytest.mark.parametrize("status", [429, 500])
def test_a_configuration_that_cannot_be_read_now_is_read_again(restart, job_manager, now, status):
    job_manager.answers["config"] = (status, "too much to do")
    attempt = restart()
    advance(now + HELD + timedelta(seconds=5))
    assert (waits(attempt).count("too much to do"), job_manager.count("run")) == (1, 0)
    job_manager.answers.clear()
    advance(now + HELD + timedelta(seconds=10))
    assert job_manager.count("run") == 1


def test_a_cluster_that_stops_answering_is_retried(restart, job_manager, now):
    job_manager.loses_request_of = {"config"}
    attempt = restart()
    advance(now + HELD + timedelta(seconds=5))
    attempt.refresh_from_db()
    assert (attempt.state, job_manager.count("run")) == ("stopping", 0)
    job_manager.loses_request_of = set()
    advance(now + HELD + timedelta(seconds=10))
    assert job_manager.count("run") == 1


def test_an_end_that_was_not_polled_yet_is_waited_for(flink, restart, job_manager, now):
    """A person requested a restart, and the job died meanwhile."""
    Run.objects.filter(pk=flink.current_run_id).update(state="RUNNING", ended_at=None, end_seen_at=None)
    job_manager.jobs.clear()
    restart(RestartTrigger.MANUAL)
    advance(now + HELD + timedelta(seconds=5))
    assert job_manager.count("run") == 0


@pytest.mark.zookeeper
def test_the_configured_zookeeper_is_read(restart, flink, job_manager, zookeeper_hosts, now, monkeypatch):
    monkeypatch.setattr(high_availability, "_ZOOKEEPER_LIMIT_S", 60)
    root = f"/test-{uuid.uuid4().hex}"
    job_manager.config = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": zookeeper_hosts,
        "high-availability.zookeeper.path.root": root,
        "high-availability.cluster-id": "/ha",
    }
    client = KazooClient(zookeeper_hosts)
    client.start()
    client.create(f"{root}/ha/leader/rest_server/connection_info", b"somebody", makepath=True)
    stored = f"{root}/ha/execution-plans/{flink.current_run.engine_job_id}"
    client.create(f"{stored}/locks", makepath=True)
    attempt = restart()
    advance(now + timedelta(minutes=5))
    assert "ZooKeeper still stores" in waits(attempt)
    assert job_manager.count("run") == 0
    client.delete(stored, recursive=True)
    advance(now + timedelta(minutes=5, seconds=2))  # at once, because the deleted entry is final
    client.delete(root, recursive=True)
    client.stop()
    client.close()
    assert job_manager.count("run") == 1


def test_another_cluster_at_the_address_gets_no_launch(flink, restart, job_manager, now):
    """Its identity is checked right before the launch, even if no poll has read it yet."""
    known = identity_of(KUBERNETES)
    assert known is not None
    Cluster.objects.filter(pk=flink.cluster_id).update(identity=known.as_row())
    job_manager.config = {"kubernetes.cluster-id": "ads", "kubernetes.namespace": "prod"}
    attempt = restart()
    advance(now + timedelta(seconds=3))
    attempt.refresh_from_db()
    assert (attempt.state, job_manager.count("run")) == ("launching", 0)
    assert attempt.steps.get(name="Start the job").text.startswith("Another cluster answers at")
    job_manager.config = {"kubernetes.cluster-id": "fraud", "kubernetes.namespace": "prod"}
    advance(now + timedelta(seconds=6))
    assert job_manager.count("run") == 1
