"""Real Flink with ZooKeeper high availability: found by its quorum; its leader is killed, and followed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from monitoring.engine.examination import examine
from monitoring.engine.high_availability import HighAvailability, told_by, why_taken_up
from monitoring.engine.identity import identity_of, same
from monitoring.engine.probe import Found
from monitoring.engine.zookeeper import Leader, Quorum, find_leader, why_it_may_come_back
from monitoring.models import Cluster, Run, RunStateChange
from monitoring.polling.poller import Poller
from monitoring.polling.service import LOOK_EVERY_S
from tests.monitoring.flink.cluster import FlinkCluster, FlinkProcess
from tests.monitoring.flink.jobs import CountJobs
from tests.waiting import eventually

pytestmark = [pytest.mark.zookeeper, pytest.mark.timeout(900)]


@pytest.fixture
def two_job_managers(libraries: Path, java_home: Path, zookeeper_hosts: str, tmp_path: Path) -> Iterator[FlinkCluster]:
    cluster = FlinkCluster(libraries, java_home, tmp_path / "ha", job_managers=2, hosts=zookeeper_hosts)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def leader_of(flink: FlinkCluster, quorum: Quorum) -> FlinkProcess:
    """The process that leads; from then on the other one is the cluster's first."""
    leader = find_leader(quorum)
    assert isinstance(leader, Leader)
    leads = flink.urls.index(leader.address)
    flink.rest_ports.sort(key=lambda port: leader.address.endswith(f":{port}"))
    return flink.job_managers[leads]


@pytest.mark.django_db(transaction=True)
def test_the_leader_is_killed_and_nobody_is_taken_for_dead(
    two_job_managers: FlinkCluster, jar: bytes, zookeeper_hosts: str, tmp_path: Path
) -> None:
    flink = two_job_managers
    quorum = Quorum(zookeeper_hosts, "/flink", "/ha")
    first = leader_of(flink, quorum)
    where = {"zookeeper_hosts": zookeeper_hosts, "zookeeper_root": "/flink", "zookeeper_cluster_id": "ha"}
    cluster = Cluster(name="ha", discovery="zookeeper", **where)
    found = examine(cluster, timezone.now)
    assert isinstance(found, Found), found
    cluster.save()
    before = cluster.rest_url
    with CountJobs(flink, jar, tmp_path) as jobs, Poller(timezone.now) as poller:
        job_id = jobs.start("survivor")

        def polled(since: datetime) -> bool:
            poller.start_due()
            poller.serve(LOOK_EVERY_S)
            cluster.refresh_from_db()
            known = Run.objects.filter(engine_job_id=job_id, state="RUNNING", observed_at__gt=since)
            return cluster.reachable and known.exists()

        started = timezone.now()
        eventually("it is polled", lambda: polled(started), 60)
        first.kill()
        killed = timezone.now()
        eventually("the other leader is polled", lambda: polled(killed) and cluster.rest_url != before, 120)
        assert "still holds" in why_it_may_come_back(quorum, job_id)
        # Of one that was given by its address, it says itself where that is to be looked up.
        told = {entry["key"]: entry["value"] for entry in flink.get("/jobmanager/config")}
        available = told_by(told)
        assert available == HighAvailability("zookeeper", timedelta(seconds=4), quorum)
        assert "still holds" in (why_taken_up(available, job_id) or "")
        jobs.ask(lambda client: client.cancel(job_id))
        eventually("no leader starts it again", lambda: not why_it_may_come_back(quorum, job_id), 60)
        assert why_taken_up(available, job_id) == ""
    assert cluster.rest_url == flink.url
    assert cluster.stranger is None
    again = identity_of(told)
    assert again is not None
    assert found.identity is not None
    assert same(found.identity, again)
    assert found.identity.process != again.process
    run = Run.objects.get()
    assert (run.engine_job_id, run.number) == (job_id, 1)
    moves = set(RunStateChange.objects.values_list("target", flat=True))
    assert not moves & {"LOST", "FAILED", "CANCELED", "FINISHED"}
