"""A cluster's leader is found in ZooKeeper and followed. An unavailable ZooKeeper proves nothing about jobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from kazoo.client import KazooClient

from monitoring.engine import examination, leaders
from monitoring.engine.examination import Problem, examine
from monitoring.engine.probe import Found
from monitoring.engine.zookeeper import Leader, LeaderWatch, Nobody, Quorum, find_leader
from monitoring.models import Cluster, Run
from monitoring.reasons.engines import EngineReason
from tests.monitoring.engine.flink_server import running
from tests.monitoring.engine.test_leader_nodes import java
from tests.monitoring.polling.conftest import FakeEngine, Workers, make_engine, poll
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually

__all__ = ["make_engine", "poll"]
pytestmark = [pytest.mark.zookeeper, pytest.mark.django_db]

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Ensemble:
    """A writer of one cluster's nodes in ZooKeeper, in Flink's format."""

    def __init__(self, hosts: str) -> None:
        self.quorum = Quorum(hosts, f"/test-{uuid.uuid4().hex}", "/demo")
        self._client = KazooClient(hosts)
        self._client.start()

    def leads(self, address: str) -> None:
        self.write(java(address))

    def write(self, data: bytes) -> None:
        path = self.quorum.paths[0]
        if not self._client.exists(path):
            self._client.create(path, data, makepath=True)
        self._client.set(path, data)

    def remove_leader(self) -> None:
        self._client.delete(self.quorum.paths[0])

    def cluster(self, hosts: str = "", **fields: Any) -> Cluster:
        return Cluster.objects.create(
            name="ha",
            discovery="zookeeper",
            zookeeper_hosts=hosts or self.quorum.hosts,
            zookeeper_root=self.quorum.root,
            zookeeper_cluster_id=self.quorum.cluster_id,
            request_limit_s=30,
            **fields,
        )

    def close(self) -> None:
        self._client.stop()
        self._client.close()


@pytest.fixture
def ensemble(zookeeper_hosts: str) -> Iterator[Ensemble]:
    ensemble = Ensemble(zookeeper_hosts)
    yield ensemble
    leaders.forget_all()
    ensemble.close()


def test_a_look_up_returns_the_leader_or_why_there_is_none(ensemble: Ensemble) -> None:
    path = ensemble.quorum.paths[0]
    assert find_leader(ensemble.quorum) == Nobody(EngineReason.NODE_MISSING(path=path))
    ensemble.leads("http://10.0.0.1:8081")
    assert find_leader(ensemble.quorum) == Leader("http://10.0.0.1:8081")
    ensemble.write(b"")
    assert find_leader(ensemble.quorum) == Nobody(EngineReason.NODE_EMPTY(path=path))
    ensemble.write(b"rubbish")
    rubbish = EngineReason.NODE_MALFORMED(problem=EngineReason.NODE_NOT_JAVA(), path=path)
    assert find_leader(ensemble.quorum) == Nobody(rubbish)
    assert str(rubbish) == f"The leader's node does not have Java's format. ({path})"
    silent = EngineReason.ZOOKEEPER_SILENT(hosts="127.0.0.1:1")
    assert find_leader(Quorum("127.0.0.1:1", "/a", "/b"), 0.5) == Nobody(silent)


def test_a_watch_follows_the_leader(ensemble: Ensemble) -> None:
    watch = LeaderWatch(ensemble.quorum)
    try:
        for address in ("http://10.0.0.1:8081", "http://10.0.0.2:8081"):
            ensemble.leads(address)
            eventually(address, lambda address=address: watch.sighting() == Leader(address), 60)
        ensemble.remove_leader()
        eventually("nobody leads", lambda: isinstance(watch.sighting(), Nobody), 60)
        ensemble.leads("http://10.0.0.3:8081")
        eventually("the third", lambda: watch.sighting() == Leader("http://10.0.0.3:8081"), 60)
    finally:
        watch.close()
    assert not watch.alive


def test_a_cluster_is_added_by_its_quorum(ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", 30)
    cluster = ensemble.cluster()
    problem = examine(cluster, lambda: NOW)
    assert isinstance(problem, Problem)
    assert (problem.field, problem.passing, problem.reason) == (
        *("zookeeper_hosts", True),
        EngineReason.NODE_MISSING(path=ensemble.quorum.paths[0]),
    )
    with running() as flink:
        ensemble.leads(flink.url)
        assert isinstance(examine(cluster, lambda: NOW), Found)
        cluster.refresh_from_db()
        assert (cluster.rest_url, cluster.leader_named_at, cluster.leader_problem) == (flink.url, NOW, "")
    ensemble.leads("http://127.0.0.1:1")
    problem = examine(cluster, lambda: NOW)
    assert isinstance(problem, Problem)
    assert problem.field == "zookeeper_cluster_id"


def test_polls_follow_the_leader_and_an_election_loses_no_job(
    ensemble: Ensemble, make_engine: Callable[[], FakeEngine], poll: Workers
) -> None:
    first, second = make_engine(), make_engine()
    job = first.job()
    second.jobs.append(job)
    ensemble.leads(first.url)
    cluster = ensemble.cluster()

    def polled_at(engine: FakeEngine) -> bool:
        poll()
        cluster.refresh_from_db()
        return cluster.reachable and cluster.rest_url == engine.url and cluster.last_answer_at is not None

    eventually("polled at the first leader", lambda: polled_at(first), 60)
    first.down_with = (503, "Service temporarily unavailable due to an ongoing leader election.")
    ensemble.remove_leader()

    def silent() -> bool:
        poll()
        cluster.refresh_from_db()
        return "The leader is unknown. According to ZooKeeper there is no leader now" in cluster.last_error

    eventually("nobody leads", silent, 60)
    assert (Run.objects.get().state, Run.objects.get().missing_since) == ("RUNNING", None)
    ensemble.leads(second.url)
    eventually("polled at the second leader", lambda: polled_at(second), 60)
    assert Run.objects.get().state == "RUNNING"


def test_polls_use_the_last_known_address_while_zookeeper_is_unreachable(
    ensemble: Ensemble, make_engine: Callable[[], FakeEngine], poll: Workers
) -> None:
    engine = make_engine()
    engine.job()
    ensemble.leads(engine.url)
    with closing(TcpProxy(ensemble.quorum.hosts)) as proxy:
        cluster = ensemble.cluster(proxy.address)

        def state() -> tuple[bool, bool]:
            poll()
            cluster.refresh_from_db()
            return cluster.last_answer_at is not None and cluster.reachable, bool(cluster.leader_problem)

        eventually("found", lambda: state() == (True, False), 60)
        proxy.cut()
        eventually("ZooKeeper is away, the cluster answers", lambda: state() == (True, True), 60)
        assert cluster.leader_problem_value == EngineReason.ZOOKEEPER_SILENT(hosts=proxy.address)
        assert Run.objects.get().state == "RUNNING"
        proxy.heal()
        eventually("ZooKeeper is back", lambda: state() == (True, False), 60)
