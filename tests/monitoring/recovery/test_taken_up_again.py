"""A leader may still revoke a death. While a highly available Flink stores the job, no restart begins."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from kazoo.client import KazooClient

from dashboard.stack.ports import any_free
from monitoring.engine.zookeeper import Quorum, stored_job_reason
from monitoring.models import Cluster, Job, RestartAttempt, RestartTrigger
from monitoring.reasons.engines import EngineReason
from monitoring.recovery.attempt import open_attempt
from monitoring.recovery.cycle import advance

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def ensemble(zookeeper_hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper_hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def quorum(zookeeper_hosts: str) -> Quorum:
    return Quorum(zookeeper_hosts, f"/test-{uuid.uuid4().hex}", "/ha")


@pytest.fixture
def available(job: Job, quorum: Quorum) -> Job:
    """Let the job's cluster be found through ZooKeeper, and return the job."""
    Cluster.objects.filter(pk=job.cluster_id).update(
        discovery="zookeeper",
        zookeeper_hosts=quorum.hosts,
        zookeeper_root=quorum.root,
        zookeeper_cluster_id=quorum.cluster_id,
    )
    return Job.objects.select_related("cluster", "current_run").get(pk=job.pk)


def store(ensemble: KazooClient, quorum: Quorum, job_id: str, place: str = "execution-plans") -> str:
    path = f"{quorum.root}{quorum.cluster_id}/{place}/{job_id}"
    ensemble.create(f"{path}/locks", makepath=True)
    return path


@pytest.mark.parametrize("place", ["execution-plans", "jobgraphs"])
def test_a_stored_job_may_be_recovered_until_its_locks_are_released(ensemble, quorum, place):
    path = store(ensemble, quorum, "abc", place)
    assert stored_job_reason(quorum, "abc") == EngineReason.JOB_STORED(job_id="abc")
    assert not stored_job_reason(quorum, "def")
    ensemble.delete(f"{path}/locks")
    assert not stored_job_reason(quorum, "abc")


def test_a_silent_ensemble_does_not_exclude_a_recovery():
    silent = Quorum(f"127.0.0.1:{any_free()}", "/flink", "/ha")
    why = stored_job_reason(silent, "abc", limit_s=0.5)
    assert why == EngineReason.ZOOKEEPER_SILENT(hosts=silent.hosts)


@pytest.mark.usefixtures("cycles_take_no_time")
@pytest.mark.parametrize("trigger", list(RestartTrigger))
def test_nothing_is_started_while_it_is_stored(available, ensemble, quorum, job_manager, now, trigger):
    path = store(ensemble, quorum, available.current_run.engine_job_id)
    open_attempt(available, trigger, "it died", "ada", now, restore_path="file:/chk/7", restore_is_savepoint=False)
    advance(now + timedelta(seconds=60))
    attempt = RestartAttempt.objects.get()
    assert attempt.state == "stopping"
    waits = attempt.steps.get(name="Stop the job").text
    assert waits.startswith("The job has ended, but the engine may start it again: ZooKeeper still stores")
    assert job_manager.count("run") == 0
    ensemble.delete(path, recursive=True)
    advance(now + timedelta(seconds=62))
    assert job_manager.count("run") == 1


@pytest.mark.usefixtures("cycles_take_no_time")
def test_nothing_is_started_while_the_zookeeper_credentials_are_unreadable(available, job_manager, now, settings):
    """Without the secret it is unknown whether the job is still stored in ZooKeeper."""
    cluster, key = available.cluster, settings.SECRET_KEY
    cluster.zookeeper_password = "hunter2"
    cluster.save()
    settings.SECRET_KEY = "another one"
    advance(now)
    attempt = RestartAttempt.objects.get()
    assert attempt.state == "stopping"
    assert attempt.steps.get(name="Stop the job").text.startswith("The credentials for ZooKeeper cannot be read.")
    assert job_manager.count("run") == 0
    settings.SECRET_KEY = key
    advance(now + timedelta(seconds=2))
    assert job_manager.count("run") == 1


@pytest.mark.usefixtures("cycles_take_no_time")
def test_a_recovered_job_is_not_restarted(available, ensemble, quorum, job_manager, now):
    engine_id = available.current_run.engine_job_id
    store(ensemble, quorum, engine_id)
    advance(now)
    assert RestartAttempt.objects.get().state == "stopping"
    job_manager.jobs[engine_id].state = "RUNNING"
    advance(now + timedelta(minutes=5))
    attempt = RestartAttempt.objects.get()
    assert (attempt.state, job_manager.count("run")) == ("canceled", 0)
    assert "The job is still active" in attempt.error
