"""An ensemble with access control: digest ACLs, SASL and TLS, for leaders of Waymark and of Flink."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, make_acl

from checkpointing.clock import SystemClock
from checkpointing.ha.driver_services import driver_services
from checkpointing.ha.errors import ConnectionUnavailable, ZooKeeperRefusal
from checkpointing.ha.leadership import LeaderInformation
from checkpointing.ha.services import zookeeper_services
from checkpointing.ha.zookeeper import Create, Delete, SetData, ZooKeeperConnection
from checkpointing.ha.zookeeper_access import OPEN, ZooKeeperAccess, make_client
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles, ZooKeeperScheme
from checkpointing.storage import read_metadata
from dashboard.stack.ports import several_free
from dashboard.stack.process import running
from monitoring.engine.connection import Tls, trust
from monitoring.engine.zookeeper import Leader, LeaderWatch, Nobody, Quorum, find_leader
from monitoring.reasons.engines import EngineReason
from tests.certificates import Authority, Signed
from tests.guarded_zookeeper import PASSWORD, USER, GuardedZooKeeper
from tests.monitoring.engine.test_leader_nodes import java
from tests.waiting import eventually

pytestmark = pytest.mark.zookeeper
DIGEST, SASL = ZooKeeperScheme.DIGEST, ZooKeeperScheme.SASL
LEADER = "http://10.0.0.1:8081"


@dataclass(frozen=True)
class Guarded:
    server: GuardedZooKeeper
    authority: Authority
    ours: Signed
    directory: Path

    def access(self, scheme: ZooKeeperScheme, password: str = PASSWORD, *, tls: bool = False) -> ZooKeeperAccess:
        context = trust(Tls(self.authority.pem, self.ours.certificate, self.ours.key)) if tls else None
        return ZooKeeperAccess(scheme, USER, password, context)

    def files(self, scheme: ZooKeeperScheme) -> ZooKeeperAccessFiles:
        content = {"password": f"{PASSWORD}\n", "ca": self.authority.pem}
        content |= {"certificate": self.ours.certificate, "key": self.ours.key}
        for name, text in content.items():
            (self.directory / name).write_text(text)
        paths = {name: str(self.directory / name) for name in content}
        return ZooKeeperAccessFiles(
            scheme, USER, paths["password"], True, paths["ca"], paths["certificate"], paths["key"]
        )

    def quorum(self, access: ZooKeeperAccess, *, secure: bool = False) -> Quorum:
        return Quorum(self.server.secure if secure else self.server.address, root(), "/demo", access)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    authority = Authority()
    theirs, ours = authority.sign(("localhost", "127.0.0.1")), authority.sign(("waymark",))
    (home / "server.pem").write_text(theirs.key + theirs.certificate)
    (home / "authority.pem").write_text(authority.pem)
    stores = {"key_store": home / "server.pem", "trust_store": home / "authority.pem"}
    server = GuardedZooKeeper(home / "zookeeper", several_free(2), java_home, **stores)
    with running(server, log=home / "zookeeper.log"):
        yield Guarded(server, authority, ours, home)


def root() -> str:
    return f"/test-{uuid.uuid4().hex}"


@contextmanager
def connected(hosts: str, at: str, access: ZooKeeperAccess) -> Iterator[ZooKeeperConnection]:
    with closing(ZooKeeperConnection(hosts, at, session_timeout_s=10.0, access=access)) as connection:
        connection.start()
        yield connection


@contextmanager
def published(quorum: Quorum, access: ZooKeeperAccess) -> Iterator[None]:
    """Publish a leader as Flink does, with nodes that only its account can use."""
    client = KazooClient(quorum.hosts, **access.client_options())
    client.start()
    client.create(quorum.paths[0], java(LEADER), makepath=True)
    try:
        yield
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("scheme", [DIGEST, SASL])
def test_created_nodes_are_restricted_to_their_owner(guarded: Guarded, scheme: ZooKeeperScheme) -> None:
    hosts, at = guarded.server.address, root()
    with connected(hosts, at, guarded.access(scheme)) as ours:
        ours.ensure("")
        ours.commit([Create("/claim", b"mine")])
        assert ours.get("/claim").data == b"mine"
    with pytest.raises(ZooKeeperRefusal, match="NoAuth"), connected(hosts, at, OPEN):
        pass
    with connected(hosts, at, guarded.access(scheme)) as again:
        assert again.get("/claim").data == b"mine"


@pytest.mark.parametrize("scheme", [ZooKeeperScheme.NONE, DIGEST, SASL])
def test_drivers_find_the_leader_over_tls(guarded: Guarded, scheme: ZooKeeperScheme, tmp_path: Path) -> None:
    """A driver finds the leader and claims its attempt with the TLS files from its specification."""
    files = guarded.files(scheme)
    services = zookeeper_services(guarded.server.secure, root(), "demo", tmp_path / "ha", read_metadata, access=files)
    with closing(services):
        result = services.driver_specification
        assert result is not None
        assert result.access == files
        with closing(driver_services(result)) as driver:
            driver.attempts.hold("a" * 32, 1)
            assert services.attempts.holder("a" * 32) == 1


def test_a_driver_without_its_tls_files_finds_no_leader(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = guarded.files(ZooKeeperScheme.NONE)
    services = zookeeper_services(guarded.server.secure, root(), "demo", tmp_path / "ha", read_metadata, access=files)
    start = ZooKeeperConnection.start
    monkeypatch.setattr(ZooKeeperConnection, "start", lambda connection: start(connection, 2.0))
    with closing(services):
        result = services.driver_specification
        assert result is not None
        with pytest.raises(ConnectionUnavailable):
            driver_services(replace(result, access=None, session_timeout_s=1.0))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("scheme", [DIGEST, SASL])
def test_flinks_leader_is_found_and_followed(guarded: Guarded, scheme: ZooKeeperScheme, tls: bool) -> None:
    quorum = guarded.quorum(guarded.access(scheme, tls=tls), secure=tls)
    with published(quorum, guarded.access(scheme, tls=tls)):
        assert find_leader(quorum) == Leader(LEADER)
        with closing(LeaderWatch(quorum)) as watch:
            eventually("it is followed", lambda: watch.sighting() == Leader(LEADER))


@pytest.mark.parametrize(
    ("access", "says"),
    [
        (OPEN, "another name or password is needed"),
        (ZooKeeperAccess(DIGEST, USER, "wrong"), "another name or password is needed"),
        (ZooKeeperAccess(SASL, USER, "wrong"), "does not accept this name and password"),
    ],
)
def test_failed_authentication_is_reported(guarded: Guarded, access: ZooKeeperAccess, says: str) -> None:
    quorum = guarded.quorum(access)
    ours = guarded.access(SASL if access.scheme is SASL else DIGEST)
    with published(quorum, ours):
        client = KazooClient(quorum.hosts, **ours.client_options())
        client.start()
        with closing(client):
            answer = find_leader(quorum)
            client.stop()
    assert isinstance(answer, Nobody)
    assert says in str(answer.why)


def test_a_log_in_that_failed_is_tried_again(guarded: Guarded) -> None:
    """The server may have died during the login. A leader or driver must then connect again."""
    client = make_client(guarded.server.address, guarded.access(SASL, "wrong"))
    with closing(client):
        client.start_async()
        eventually("it was refused", lambda: client.refused)
        client._connection.sasl_options["password"] = PASSWORD
        eventually("it is let in", lambda: client.connected and not client.refused)
        client.stop()


@pytest.mark.parametrize("trusted", ["another authority", "no certificate of ours"])
def test_tls_failure_is_explained(guarded: Guarded, trusted: str) -> None:
    tls = Tls(Authority("Another").pem) if trusted == "another authority" else Tls(guarded.authority.pem)
    answer = find_leader(guarded.quorum(ZooKeeperAccess(tls=trust(tls)), secure=True), 3.0)
    assert isinstance(answer, Nobody)
    assert "over TLS" in str(answer.why)


def forge(guarded: Guarded, path: str, acl: list[ACL] | None = None) -> None:
    """Write a leader's address from another account. ZooKeeper lets this account put any user into the ACL."""
    with closing(KazooClient(guarded.server.address)) as stranger:
        stranger.start()
        stranger.create(path, LeaderInformation("http://evil.example", "x").encode(), makepath=True)
        if acl is not None:
            stranger.set_acls(path, acl)
        stranger.stop()


FORGED = [None, [make_acl("sasl", USER, all=True)], [make_acl("world", "anyone", admin=True, delete=True)]]


@pytest.mark.parametrize("acl", FORGED)
def test_a_driver_does_not_follow_an_address_that_others_can_write(guarded: Guarded, acl: list[ACL] | None) -> None:
    at = root()
    forge(guarded, f"{at}/{CONNECTION_INFO}", acl)
    with connected(guarded.server.address, at, guarded.access(SASL)) as ours:
        retrieval = ZooKeeperLeaderRetrieval(ours, SystemClock())
        assert retrieval.current() is None
        ours.protect()
        ours.commit([Delete(CONNECTION_INFO), Create(CONNECTION_INFO, LeaderInformation(LEADER, "y").encode())])
        assert retrieval.current() == LeaderInformation(LEADER, "y")


@pytest.mark.parametrize("scheme", [DIGEST, SASL])
@pytest.mark.parametrize("tls", [False, True])
def test_job_manager_restricts_nodes_that_an_earlier_version_left_open(
    guarded: Guarded, scheme: ZooKeeperScheme, tls: bool, tmp_path: Path
) -> None:
    at, graph = root(), "execution-plans/" + "a" * 32
    with connected(guarded.server.address, f"{at}/demo", OPEN) as open_to_all:
        open_to_all.ensure(graph)
        open_to_all.commit([SetData(graph, b"kept", -1)])
    hosts = guarded.server.secure if tls else guarded.server.address
    files = guarded.files(scheme) if tls else replace(guarded.files(scheme), uses_tls=False)

    services = zookeeper_services(hosts, at, "demo", tmp_path / "ha", read_metadata, access=files)

    with closing(services), connected(hosts, f"{at}/demo", guarded.access(scheme, tls=tls)) as ours:
        assert ours.get(graph).data == b"kept"
        assert ours.is_ours(graph)
        with closing(KazooClient(guarded.server.address)) as stranger:
            stranger.start()
            with pytest.raises(NoAuthError):
                stranger.set(f"{at}/demo/{graph}", b"forged")
            stranger.stop()


@pytest.mark.parametrize("scheme", [DIGEST, SASL])
def test_a_password_is_not_sent_to_a_leader_that_others_can_write(guarded: Guarded, scheme: ZooKeeperScheme) -> None:
    quorum = guarded.quorum(guarded.access(scheme))
    forge(guarded, quorum.paths[0])
    assert find_leader(quorum) == Leader("http://evil.example")
    answer = find_leader(replace(quorum, gets_secrets=True))
    assert answer == Nobody(EngineReason.NODE_NOT_OURS(name=USER, path=quorum.paths[0]))
    mine = replace(guarded.quorum(guarded.access(scheme)), gets_secrets=True)
    with published(mine, mine.access):
        assert find_leader(mine) == Leader(LEADER)
