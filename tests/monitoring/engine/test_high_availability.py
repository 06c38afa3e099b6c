"""Flink's high availability settings: whether another leader may recover jobs, where they are stored, and how long."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from kazoo.client import KazooClient

from dashboard.stack.ports import any_free
from monitoring.engine import high_availability
from monitoring.engine.high_availability import HighAvailability, find_recovery_reason, high_availability_of
from monitoring.engine.zookeeper import Quorum
from monitoring.reasons.engines import EngineReason
from tests.monitoring.engine.flink_server import MANAGER

KUBERNETES = {"high-availability.type": "kubernetes", "kubernetes.cluster-id": "fraud"}


def settings_of(settings: dict[str, str]) -> HighAvailability:
    found = high_availability_of(settings)
    assert found is not None
    return found


def test_a_flink_with_zookeeper_reports_where_its_jobs_are_stored() -> None:
    assert settings_of(MANAGER) == HighAvailability(
        "zookeeper", timedelta(seconds=60), Quorum("zk1:2181,zk2:2181", "/flink", "/demo")
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"high-availability.type": "NONE"},
        {"high-availability": "none"},
        {"kubernetes.cluster-id": "fraud"},
        {"high-availability.type": " ", "high-availability.storageDir": "s3://x"},
    ],
)
def test_without_high_availability_no_job_is_recovered(settings: dict[str, str]) -> None:
    assert high_availability_of(settings) is None


@pytest.mark.parametrize(
    "kind",
    ["KUBERNETES", "kubernetes", "org.apache.flink.kubernetes.highavailability.KubernetesHaServicesFactory"],
)
def test_kubernetes_has_a_lease_and_no_quorum(kind: str) -> None:
    assert settings_of(KUBERNETES | {"high-availability.type": kind}) == HighAvailability(kind, timedelta(seconds=15))


def test_the_longest_lease_is_assumed_for_a_custom_high_availability_factory() -> None:
    assert settings_of({"high-availability": "com.example.OurFactory"}).lease == timedelta(seconds=60)


@pytest.mark.parametrize(
    ("text", "lease"),
    [
        ("4000", timedelta(seconds=4)),
        ("90 s", timedelta(seconds=90)),
        ("2 min", timedelta(minutes=2)),
        ("7 d", timedelta(minutes=5)),
        ("soon", timedelta(seconds=60)),
        ("", timedelta(seconds=60)),
        ("9" * 40, timedelta(seconds=60)),
    ],
)
def test_the_lease_is_the_configured_session_timeout_within_limits(text: str, lease: timedelta) -> None:
    assert settings_of(MANAGER | {"high-availability.zookeeper.client.session-timeout": text}).lease == lease


def test_the_lease_on_kubernetes_is_the_configured_one() -> None:
    key = "high-availability.kubernetes.leader-election.lease-duration"
    assert settings_of(KUBERNETES | {key: "30 s"}).lease == timedelta(seconds=30)


@pytest.mark.parametrize("missing", ["high-availability.cluster-id", "high-availability.zookeeper.quorum"])
def test_an_incomplete_configuration_has_no_quorum(missing: str) -> None:
    assert settings_of({**MANAGER, missing: ""}).quorum is None


def test_a_quorum_with_a_chroot() -> None:
    settings = MANAGER | {"high-availability.zookeeper.quorum": "zk1:2181/shared"}
    assert settings_of(settings).quorum == Quorum("zk1:2181", "/shared/flink", "/demo")


class TestLooking:
    """Reading the stored jobs in a real ZooKeeper."""

    pytestmark = pytest.mark.zookeeper

    @pytest.fixture(autouse=True)
    def long_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(high_availability, "_ZOOKEEPER_LIMIT_S", 60)

    @pytest.fixture
    def base(self) -> str:
        return f"/test-{uuid.uuid4().hex}"

    @pytest.fixture
    def client(self, zookeeper_hosts: str, base: str) -> Iterator[KazooClient]:
        client = KazooClient(zookeeper_hosts)
        client.start()
        yield client
        client.delete(base, recursive=True)
        client.stop()
        client.close()

    @pytest.fixture
    def led(self, client: KazooClient, base: str) -> None:
        client.create(f"{base}/ha/leader/rest_server/connection_info", b"somebody", makepath=True)

    @pytest.fixture
    def available(self, zookeeper_hosts: str, base: str) -> HighAvailability:
        return HighAvailability("zookeeper", timedelta(seconds=60), Quorum(zookeeper_hosts, base, "/ha"))

    def test_a_stored_job_may_be_recovered(self, client: KazooClient, led: None, available, base: str) -> None:
        client.create(f"{base}/ha/execution-plans/abc/locks", makepath=True)
        assert find_recovery_reason(available, "abc") == EngineReason.JOB_STORED(job_id="abc")
        assert find_recovery_reason(available, "def") == ""

    def test_a_path_without_a_leader_gives_no_recovery_reason(self, client: KazooClient, available, base: str) -> None:
        client.create(f"{base}/ha/execution-plans", makepath=True)
        assert find_recovery_reason(available, "abc") is None

    def test_a_name_is_resolved_once_and_judged(self, led: None, available, zookeeper_hosts: str) -> None:
        port = zookeeper_hosts.split(",")[0].rpartition(":")[2]
        asked: list[str] = []

        def resolve(host: str, _port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1"]

        named = HighAvailability(
            "zookeeper", available.lease, Quorum(f"zk.example:{port}", available.quorum.root, "/ha")
        )
        assert find_recovery_reason(named, "abc", resolve) == ""
        assert asked == ["zk.example"]

    def test_a_forbidden_address_among_them_is_not_connected_to(self, led: None, available, zookeeper_hosts) -> None:
        hosts = f"{zookeeper_hosts},169.254.169.254:2181"
        forbidden = HighAvailability("zookeeper", available.lease, Quorum(hosts, available.quorum.root, "/ha"))
        assert find_recovery_reason(available, "abc") == ""
        assert find_recovery_reason(forbidden, "abc") is None

    def test_a_silent_ensemble_gives_no_recovery_reason(self, available, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(high_availability, "_ZOOKEEPER_LIMIT_S", 0.3)
        silent = Quorum(f"127.0.0.1:{any_free()}", "/flink", "/ha")
        assert find_recovery_reason(HighAvailability("zookeeper", available.lease, silent), "abc") is None


def test_a_name_that_does_not_resolve_is_not_contacted() -> None:
    def resolve(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    assert find_recovery_reason(settings_of(MANAGER), "abc", resolve) is None


def test_kubernetes_gives_no_recovery_reason() -> None:
    assert find_recovery_reason(settings_of(KUBERNETES), "abc") is None
