"""If a URL leads to another cluster, its answers prove nothing about the known jobs."""

from __future__ import annotations

import pytest

from monitoring.engine import registration
from monitoring.models import Cluster, Job, Outage, OutageKind, Run
from monitoring.reasons.engines import EngineReason
from tests.monitoring.engine.flink_server import MANAGER
from tests.monitoring.polling.conftest import FakeEngine, Workers

ANOTHER = MANAGER | {"high-availability.cluster-id": "/other", "web.tmpdir": f"/tmp/flink-web-{'0' * 36}"}
PATH = "/jobmanager/config"


def set_configuration(engine: FakeEngine, config: dict[str, str]) -> None:
    engine.instead[PATH] = [{"key": key, "value": value} for key, value in config.items()]


@pytest.fixture
def watched(engine: FakeEngine, cluster: Cluster, poll: Workers) -> Run:
    set_configuration(engine, MANAGER)
    engine.job()
    poll()
    return Run.objects.get()


def test_the_identity_is_stored_and_not_requested_at_every_poll(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers
) -> None:
    cluster.refresh_from_db()
    assert (cluster.identity["names"]["cluster-id"], cluster.history_length) == ("/demo", 25)
    for _ in range(6):
        poll()
    assert engine.asked.count(PATH) == 1


def test_another_cluster_at_the_address_neither_loses_nor_adds_jobs(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers
) -> None:
    job = engine.jobs.pop()
    set_configuration(engine, ANOTHER)
    engine.job(name="a job of another cluster")
    text = " ".join(poll() for _ in range(12))
    watched.refresh_from_db()
    cluster.refresh_from_db()
    assert (watched.state, watched.missing_since, cluster.reachable) == ("RUNNING", None, False)
    assert Job.objects.count() == 1
    assert "Another cluster answers at" in text
    assert cluster.last_error_value.code is EngineReason.ANOTHER_CLUSTER
    assert "cluster-id /demo" in cluster.last_error
    assert cluster.stranger["names"]["cluster-id"] == "/other"
    assert [(each.kind, each.ended_at) for each in Outage.objects.all()] == [(OutageKind.ANOTHER_CLUSTER, None)]

    set_configuration(engine, MANAGER)
    engine.jobs[:] = [job]
    poll()
    cluster.refresh_from_db()
    assert (cluster.reachable, cluster.stranger) == (True, None)
    assert not Outage.objects.filter(ended_at=None).exists()


def test_an_outage_that_turns_out_to_be_another_cluster_is_distinguished(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers
) -> None:
    engine.instead["/jobs/overview"] = "{"
    poll()
    del engine.instead["/jobs/overview"]
    engine.jobs.clear()
    set_configuration(engine, ANOTHER)
    text = " ".join(poll() for _ in range(3))
    kinds = [(each.kind, each.ended_at is None) for each in Outage.objects.order_by("began_at")]
    assert kinds == [(OutageKind.NO_ANSWER, False), (OutageKind.ANOTHER_CLUSTER, True)]
    assert text.count("Another cluster answers at") == 1


def test_a_person_confirms_that_it_was_rebuilt(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers
) -> None:
    engine.jobs.clear()
    set_configuration(engine, ANOTHER)
    poll()
    cluster.refresh_from_db()
    assert cluster.stranger is not None
    registration.confirm_same(cluster, "alma")
    for _ in range(8):
        poll()
    watched.refresh_from_db()
    cluster.refresh_from_db()
    assert (watched.state, cluster.reachable, cluster.stranger) == ("LOST", True, None)
    assert cluster.identity["names"]["cluster-id"] == "/other"


def test_a_restarted_job_manager_is_the_same_cluster(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers
) -> None:
    set_configuration(engine, MANAGER | {"web.tmpdir": f"/tmp/flink-web-{'1' * 36}"})
    engine.job(name="new")
    poll()
    cluster.refresh_from_db()
    assert (cluster.reachable, cluster.identity["process"]) == (True, "1" * 36)
    assert Job.objects.count() == 2


def test_an_engine_without_an_identity_is_accepted(engine: FakeEngine, cluster: Cluster, poll: Workers) -> None:
    engine.refused[PATH] = (404, "Not found.")
    engine.job()
    poll()
    engine.jobs.clear()
    for _ in range(8):
        poll()
    assert Run.objects.get().state == "LOST"


@pytest.mark.parametrize(
    "answer", [(503, "Service temporarily unavailable due to an ongoing leader election."), (500, "busy"), (429, "")]
)
def test_no_job_is_lost_while_the_identity_is_unreadable(
    watched: Run, engine: FakeEngine, cluster: Cluster, poll: Workers, answer: tuple[int, str]
) -> None:
    engine.jobs.clear()
    engine.refused[PATH] = answer
    for _ in range(8):
        poll()
    watched.refresh_from_db()
    assert (watched.state, watched.missing_since) == ("RUNNING", None)
