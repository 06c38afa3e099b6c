"""A cluster's identity: what remains after a restart, what differs, and what cannot be distinguished."""

from __future__ import annotations

import pytest

from monitoring.engine.identity import Application, Identity, identity_of, other_cluster_reason, same
from tests.monitoring.engine.flink_server import MANAGER, PROCESS

STANDALONE = {"jobmanager.rpc.address": "jm", "jobmanager.rpc.port": "6123", "web.tmpdir": MANAGER["web.tmpdir"]}
KUBERNETES = {"kubernetes.cluster-id": "fraud", "kubernetes.namespace": "prod", **STANDALONE}
WAYMARK = {"cluster-id": "default", "state-directory": "/var/waymark", "high-availability": "NONE"}
WAYMARK_HA = WAYMARK | {
    "high-availability": "ZOOKEEPER",
    "zookeeper-hosts": "zk1:2181,zk2:2181",
    "zookeeper-root": "/waymark",
}


def read(config: dict[str, str], **changes: str) -> Identity:
    """Return the identity of the same cluster after a restart of its job manager."""
    return first(config | {"web.tmpdir": f"/tmp/flink-web-{PROCESS[::-1]}"} | changes)


def first(config: dict[str, str]) -> Identity:
    found = identity_of(config)
    assert found is not None
    return found


@pytest.mark.parametrize("config", [MANAGER, STANDALONE, KUBERNETES, WAYMARK, WAYMARK_HA])
def test_a_cluster_keeps_its_identity_after_a_restart(config: dict[str, str]) -> None:
    assert same(first(config), read(config))


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (MANAGER, {"high-availability.cluster-id": "/other"}),
        (MANAGER, {"high-availability.zookeeper.path.root": "/elsewhere"}),
        (MANAGER, {"high-availability.zookeeper.quorum": "zk9:2181"}),
        (MANAGER, {"high-availability.type": "NONE", "high-availability.cluster-id": ""}),
        (STANDALONE, {"jobmanager.rpc.address": "jm-other"}),
        (KUBERNETES, {"kubernetes.namespace": "test"}),
        (KUBERNETES, {"kubernetes.cluster-id": "ads"}),
        (WAYMARK, {"state-directory": "/elsewhere"}),
        (WAYMARK_HA, {"zookeeper-root": "/elsewhere"}),
        (WAYMARK, {"cluster-id": "second"}),
    ],
)
def test_another_cluster_is_noticed(config: dict[str, str], changes: dict[str, str]) -> None:
    assert not same(first(config), read(config, **changes))


def test_one_server_of_the_quorum_in_common_is_enough() -> None:
    assert same(first(MANAGER), read(MANAGER, **{"high-availability.zookeeper.quorum": "zk2:2181,zk3:2181"}))


def test_the_same_process_is_the_same_cluster_for_any_configuration() -> None:
    assert same(first(STANDALONE), first(STANDALONE | {"jobmanager.rpc.address": "renamed"}))


def test_a_second_cluster_without_a_cluster_id_is_not_distinguished_from_a_restart() -> None:
    """This is a known limit: two clusters with the same configuration, without high availability."""
    assert not first(STANDALONE).lasting
    assert same(first(STANDALONE), read(STANDALONE))


def test_an_engine_without_identifying_settings_has_no_identity() -> None:
    assert identity_of({"parallelism.default": "2"}) is None


@pytest.mark.parametrize(
    ("config", "application"),
    [
        ({"execution.target": "embedded"}, Application()),
        ({"execution.target": "yarn-per-job", "state.savepoints.dir": "s3://b/sp"}, Application(0, "s3://b/sp")),
        ({"execution.target": "embedded", "high-availability.type": "kubernetes"}, Application(15)),
        ({"execution.target": "embedded", "execution.shutdown-on-application-finish": "false"}, None),
        ({"execution.target": "kubernetes-session"}, None),
        ({}, None),
    ],
)
def test_a_cluster_of_application_mode_ends_with_its_job(config: dict[str, str], application: Application) -> None:
    found = first(STANDALONE | config)
    assert found.application == application
    assert Identity.from_row(found.as_row()) == found
    assert same(found, first(STANDALONE))


def test_an_identity_of_an_earlier_version_is_no_application() -> None:
    row = first(STANDALONE).as_row()
    del row["application"]
    assert Identity.from_row(row).application is None


def test_an_identity_is_equal_after_it_was_stored() -> None:
    found = first(MANAGER)
    assert Identity.from_row(found.as_row()) == found


def test_the_sentence_names_both() -> None:
    reason = other_cluster_reason("http://x", first(MANAGER), read(MANAGER, **{"high-availability.cluster-id": "/b"}))
    sentence = str(reason)
    assert sentence.startswith("Another cluster answers at http://x: it was path /flink, cluster-id /demo at zk1:2181")
    assert "is now path /flink, cluster-id /b at zk1:2181" in sentence
