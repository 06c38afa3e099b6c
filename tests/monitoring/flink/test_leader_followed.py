"""A real Flink with ZooKeeper high availability, found by its quorum.

Its leader is killed, and Waymark follows the next one. A job that Flink gives up is restarted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from monitoring.engine.examination import examine
from monitoring.engine.high_availability import HighAvailability, find_recovery_reason, high_availability_of
from monitoring.engine.identity import identity_of, same
from monitoring.engine.probe import Found
from monitoring.engine.zookeeper import Leader, Quorum, find_leader, stored_job_reason
from monitoring.launches import remember_edit
from monitoring.models import Cluster, Job, RestartAttempt, RestartDecision, Run, RunStateChange, Verdict
from monitoring.programs import keep
from monitoring.reasons.engines import EngineReason
from tests.monitoring.flink.cluster import FlinkCluster, FlinkProcess
from tests.monitoring.flink.jobs import CONFIGURATION, CountJobs
from tests.monitoring.flink.waymark import Waymark
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.zookeeper, pytest.mark.timeout(900)]


@pytest.fixture
def two_job_managers(libraries: Path, java_home: Path, zookeeper_hosts: str, tmp_path: Path) -> Iterator[FlinkCluster]:
    cluster = FlinkCluster(libraries, java_home, tmp_path / "ha", job_managers=2, hosts=zookeeper_hosts)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def leader_of(flink: FlinkCluster, quorum: Quorum) -> FlinkProcess:
    """Return the leading process, and make the other one the first of the cluster."""
    leader = find_leader(quorum)
    assert isinstance(leader, Leader)
    leads = flink.urls.index(leader.address)
    flink.rest_ports.sort(key=lambda port: leader.address.endswith(f":{port}"))
    return flink.job_managers[leads]


# A leader's death does not count as a failure of the job. A job that fails repeatedly is given up.
GIVES_UP = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "2",
    "restart-strategy.fixed-delay.delay": "500 ms",
}


@pytest.mark.django_db(transaction=True)
def test_after_the_leader_is_killed_only_abandoned_jobs_are_lost(
    two_job_managers: FlinkCluster, jar: bytes, zookeeper_hosts: str, tmp_path: Path
) -> None:
    flink = two_job_managers
    quorum = Quorum(zookeeper_hosts, "/flink", "/ha")
    first = leader_of(flink, quorum)
    where = {"zookeeper_hosts": zookeeper_hosts, "zookeeper_root": "/flink", "zookeeper_cluster_id": "ha"}
    cluster = Cluster(name="ha", discovery="zookeeper", poll_interval_s=1, **where)
    found = examine(cluster, timezone.now)
    assert isinstance(found, Found), found
    cluster.save()
    before = cluster.rest_url
    with CountJobs(flink, jar, tmp_path) as jobs, Waymark() as waymark:
        job_id = jobs.start("survivor", configuration=GIVES_UP)
        job = waymark.job("survivor")
        look_after(job, jobs, jar)
        waymark.until("a state of it is known", lambda: job.runs.get().checkpoints.filter(status="COMPLETED").exists())

        # 1. Flink's high availability recovers the job, and Waymark does not restart it.
        first.kill()
        killed = timezone.now()

        def followed() -> bool:
            cluster.refresh_from_db()
            known = Run.objects.filter(engine_job_id=job_id, state="RUNNING", observed_at__gt=killed)
            return cluster.reachable and known.exists() and cluster.rest_url != before

        waymark.until("the other leader is polled", followed, 120)
        completed = job.runs.get().checkpoints.filter(status="COMPLETED", triggered_at__gt=killed)
        waymark.until("it continues", completed.exists, 120)
        assert stored_job_reason(quorum, job_id) == EngineReason.JOB_STORED(job_id=job_id)
        assert not RestartAttempt.objects.exists()
        assert not RestartDecision.objects.filter(verdict=Verdict.RESTART).exists()
        # For a cluster that is stored by address, Flink's configuration has the location of its nodes.
        result = {entry["key"]: entry["value"] for entry in flink.get("/jobmanager/config")}
        available = high_availability_of(result)
        assert available == HighAvailability("zookeeper", timedelta(seconds=4), quorum)
        assert find_recovery_reason(available, job_id) == EngineReason.JOB_STORED(job_id=job_id)
        moves = set(RunStateChange.objects.values_list("target", flat=True))
        assert not moves & {"LOST", "FAILED", "CANCELED", "FINISHED"}

        # 2. The job fails until Flink gives it up. Then no leader recovers it, and Waymark restarts it.
        jobs.turn("fail", on=True)
        eventually("Flink gives it up", lambda: flink.state(job_id) == "FAILED", 120)
        jobs.turn("fail", on=False)
        attempt = waymark.until("a restart is decided", lambda: job.restart_attempts.first(), 120)
        assert attempt is not None
        jobs.adopt(attempt.engine_job_id)
        back = waymark.ended(attempt)
        assert (back.state, back.old_run.engine_job_id) == ("succeeded", job_id), back.error
        assert "has been FAILED since" in back.reason
        assert back.restore_path
        assert find_recovery_reason(available, job_id) == ""
        assert flink.state(back.engine_job_id) == "RUNNING"
        lives = [each["jid"] for each in flink.get("/jobs/overview")["jobs"] if each["state"] == "RUNNING"]
        assert lives == [back.engine_job_id]

        # 3. A job that a person cancels stays canceled.
        jobs.ask(lambda client: client.cancel(back.engine_job_id))
        eventually("no leader starts it again", lambda: not stored_job_reason(quorum, back.engine_job_id), 60)
        waymark.until("it is canceled", lambda: job.runs.filter(state="CANCELED").exists())
    assert RestartAttempt.objects.count() == 1
    assert cluster.rest_url == flink.url
    assert cluster.stranger is None
    again = identity_of(result)
    assert again is not None
    assert found.identity is not None
    assert same(found.identity, again)
    assert found.identity.process != again.process


def look_after(job: Job, jobs: CountJobs, jar: bytes) -> None:
    """Enable automatic restarts and store how to start the job, with its jar, because a dead leader loses the jar."""
    settings = {**CONFIGURATION, **GIVES_UP}
    spec = {"kind": "flink-jar", "jar_id": jobs.jar_id, "program_args": [str(jobs.switches)], "configuration": settings}
    remember_edit(job, spec | {"parallelism": 2, "entry_class": None}, "ada", timezone.now())
    keep(job.cluster, jobs.jar_id, "count.jar", jar, "ada", timezone.now())
    Job.objects.filter(pk=job.pk).update(auto_restart=True)
