"""Election and retrieval on one real server. See test_ha_zookeeper_faults.py for servers that die."""

from __future__ import annotations

import threading

import pytest

from checkpointing.clock import ManualClock, SystemClock
from checkpointing.ha.errors import ConnectionUnavailable, LeadershipLost
from checkpointing.ha.leadership import (
    ElectionClosed,
    LeaderInformation,
    StandaloneLeaderElection,
    StandaloneLeaderRetrieval,
)
from checkpointing.ha.zookeeper import ConnectionState, Create, Delete
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO, LATCH, ZooKeeperLeaderElection
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from tests.profile import IS_CI
from tests.tcp_proxy import TcpProxy

zookeeper = pytest.mark.zookeeper


class Contender:
    """A contender that confirms each term and records all events."""

    def __init__(self, election, address, on_grant=None):
        self.election = election
        self.address = address
        self.on_grant = on_grant
        self.events = []
        self.session_id = None

    def grant_leadership(self, session_id):
        self.session_id = session_id
        self.events.append("granted")
        if self.on_grant:
            self.on_grant()
        else:
            self.election.confirm_leadership(session_id, self.address)

    def revoke_leadership(self):
        self.session_id = None
        self.events.append("revoked")

    def on_error(self, error):
        self.events.append(error)

    def on_fatal_error(self, error):
        self.events.append(f"fatal: {error}")

    @property
    def leads(self):
        return self.session_id is not None and self.election.has_leadership(self.session_id)


@pytest.fixture
def make_contender(connect):
    """Return a function that starts a contender with a separate connection, which is closed after the test."""
    contenders = []

    def make(address="http://127.0.0.1:8081", hosts=None, clock=None, on_grant=None, connection=None):
        connection = connection or connect(hosts)
        contender = Contender(ZooKeeperLeaderElection(connection, clock or SystemClock()), address, on_grant)
        contender.connection = connection
        contender.election.start(contender)
        contenders.append(contender)
        return contender

    yield make
    for contender in contenders:
        contender.election.close()


@pytest.fixture
def retrieval(connection):
    return ZooKeeperLeaderRetrieval(connection, SystemClock())


@zookeeper
def test_conformance_L01_L09_L11_one_contender_leads_and_is_found(make_contender, retrieval):
    contender = make_contender("http://127.0.0.1:1")
    found = retrieval.wait(10)
    assert found == LeaderInformation("http://127.0.0.1:1", contender.session_id)
    assert contender.leads


@zookeeper
def test_conformance_L02_L03_L15_each_dead_leader_is_followed_by_another_one_and_one_leads_at_a_time(
    make_contender, retrieval, eventually
):
    contenders = [make_contender(f"http://127.0.0.1:{number}") for number in range(4)]
    led = set()
    while contenders:
        eventually(lambda: sum(contender.leads for contender in contenders) == 1)
        [leader] = [contender for contender in contenders if contender.leads]
        found = retrieval.wait(10)
        while found.address != leader.address:
            found = retrieval.wait(10, other_than=found.session_id)
        led.add(leader.address)
        contenders.remove(leader)
        if len(led) == 2:
            contenders.append(make_contender("http://127.0.0.1:99"))
        leader.election.close()
    assert len(led) == 5


@zookeeper
def test_conformance_L06_the_information_ends_with_the_session(make_contender, retrieval, eventually):
    contender = make_contender()
    assert retrieval.wait(10)
    contender.connection.close()
    eventually(lambda: retrieval.current() is None)
    assert not contender.leads


@zookeeper
def test_conformance_L10_L17_a_suspended_connection_revokes_at_once(make_contender, proxy, eventually):
    contender = make_contender(hosts=proxy.address, clock=ManualClock())  # so that the term does not expire
    eventually(lambda: contender.leads)
    session_id = contender.session_id
    proxy.cut()
    eventually(lambda: not contender.election.has_leadership(session_id))
    assert contender.connection.state is ConnectionState.SUSPENDED
    eventually(lambda: contender.events == ["granted", "revoked"])
    with pytest.raises(LeadershipLost):
        contender.election.fence  # noqa: B018
    proxy.heal()
    eventually(lambda: contender.leads)
    assert contender.session_id != session_id


@zookeeper
def test_an_expired_session_ends_the_term_and_the_next_one_has_another_fence(
    make_contender, expire_session, eventually
):
    contender = make_contender()
    eventually(lambda: contender.leads)
    fence = contender.election.fence
    expire_session(contender.connection)
    eventually(lambda: contender.events == ["granted", "revoked", "granted"])
    eventually(lambda: contender.leads)
    assert contender.election.fence != fence


@zookeeper
def test_a_term_that_was_uncertain_for_a_moment_is_over(make_contender, eventually):
    """Callers acted on the uncertain answer: a leader that had to recover its jobs left them to the next leader."""
    clock = ManualClock()
    contender = make_contender(clock=clock)
    eventually(lambda: contender.leads)
    term, result = contender.session_id, []
    children = contender.connection.children

    def after_a_standstill(path):
        if not result:
            clock.advance(contender.connection.session_timeout_s)
            result.append(contender.election.has_leadership(term))
        return children(path)

    contender.connection.children = after_a_standstill
    eventually(lambda: contender.events == ["granted", "revoked", "granted"])
    assert result == [False]
    assert contender.session_id != term
    assert not contender.election.has_leadership(term)


@zookeeper
def test_a_leader_that_cannot_confirm_its_term_loses_it(make_contender, eventually):
    """The connection is not lost, but the server does not answer in time."""
    clock = ManualClock()
    contender = make_contender(clock=clock)
    eventually(lambda: contender.leads)
    confirm, tried = contender.connection.confirm, threading.Event()

    def not_in_time(path):
        tried.set()
        raise ConnectionUnavailable("no answer in time")

    contender.connection.confirm = not_in_time
    assert tried.wait(contender.connection.session_timeout_s)
    assert contender.leads  # until the session timeout
    clock.advance(contender.connection.session_timeout_s)
    eventually(lambda: contender.events == ["granted", "revoked"])
    assert contender.connection.state is ConnectionState.CONNECTED

    contender.connection.confirm = confirm
    eventually(lambda: contender.events == ["granted", "revoked", "granted"])


@zookeeper
def test_leadership_expires_on_the_monotonic_clock_without_contact_to_the_server(make_contender, eventually):
    clock = ManualClock()
    contender = make_contender(clock=clock)
    eventually(lambda: contender.leads)
    session_id = contender.session_id
    clock.jump(3600)
    assert contender.election.has_leadership(session_id)
    clock.advance(contender.connection.session_timeout_s)
    assert not contender.election.has_leadership(session_id)


@zookeeper
def test_conformance_L07_M20_a_revoked_contender_does_not_change_the_leader_information(
    make_contender, connect, proxy, retrieval, eventually
):
    first = make_contender("http://127.0.0.1:1", connection=connect(proxy.address, session_timeout_s=5.0))
    eventually(lambda: first.leads)
    second = make_contender("http://127.0.0.1:2")
    proxy.cut()
    eventually(lambda: second.leads)
    proxy.heal()
    eventually(lambda: first.connection.state is ConnectionState.CONNECTED)
    first.election.close()
    assert retrieval.wait(10).address == "http://127.0.0.1:2"
    assert second.leads


@zookeeper
def test_conformance_L13_only_the_leader_publishes(make_contender, retrieval, eventually):
    leader = make_contender("http://127.0.0.1:1")
    eventually(lambda: leader.leads)
    standby = make_contender("http://127.0.0.1:2")
    assert not standby.election.confirm_leadership(leader.session_id, standby.address)
    assert retrieval.wait(10).address == "http://127.0.0.1:1"


@zookeeper
def test_conformance_M12_L14_foreign_information_is_corrected_by_the_leader(
    make_contender, connection, retrieval, eventually
):
    contender = make_contender("http://127.0.0.1:1")
    assert retrieval.wait(10)
    foreign = LeaderInformation("http://127.0.0.1:666", "nobody").encode()
    connection.commit([Delete(CONNECTION_INFO), Create(CONNECTION_INFO, foreign)])
    wanted = LeaderInformation("http://127.0.0.1:1", contender.session_id)
    eventually(lambda: retrieval.current() == wanted)


@zookeeper
def test_a_deleted_place_in_the_election_ends_the_term(make_contender, connection, eventually):
    contender = make_contender()
    eventually(lambda: contender.leads)
    connection.delete(contender.election.fence)
    eventually(lambda: contender.events == ["granted", "revoked", "granted"])


@zookeeper
def test_conformance_M11_closing_while_leading_revokes_and_withdraws(make_contender, connection, retrieval, eventually):
    contender = make_contender()
    assert retrieval.wait(10)
    session_id = contender.session_id
    contender.election.close()
    assert contender.events == ["granted", "revoked"]
    assert not contender.election.has_leadership(session_id)
    assert retrieval.current() is None
    assert connection.children(LATCH) == []


@zookeeper
def test_conformance_M03_a_contender_may_close_the_election_in_its_grant(make_contender, eventually):
    known, closed = threading.Event(), threading.Event()

    def close():
        known.wait(60)
        contender.election.close()
        closed.set()

    contender = make_contender(on_grant=close)
    known.set()
    assert closed.wait(20)
    eventually(lambda: contender.events == ["granted", "revoked"])


@zookeeper
def test_conformance_M09_a_term_that_ended_before_its_callback_is_not_reported(make_contender, connection, eventually):
    result = threading.Event()
    contender = make_contender(on_grant=lambda: result.wait(60))
    eventually(lambda: contender.events == ["granted"])
    for _ in range(2):  # two more terms begin before the contender has handled the first
        fence = contender.election.fence
        connection.delete(fence)
        eventually(lambda ended=fence: fence_of(contender) not in (None, ended))
    result.set()
    eventually(lambda: contender.events == ["granted", "revoked", "granted"])
    contender.election.close()
    assert contender.events == ["granted", "revoked", "granted", "revoked"]


def fence_of(contender):
    try:
        return contender.election.fence
    except LeadershipLost:
        return None


def refuse(message="the storage is away"):
    raise OSError(message)


@zookeeper
def test_a_contender_that_cannot_lead_leaves_the_election_to_the_next_one(make_contender, retrieval, eventually):
    first = make_contender("http://127.0.0.1:1", on_grant=refuse)
    eventually(lambda: first.events[:2] == ["granted", "revoked"])
    second = make_contender("http://127.0.0.1:2")
    assert retrieval.wait(10).address == "http://127.0.0.1:2"
    assert second.leads
    eventually(lambda: len(first.connection.children(LATCH)) == 2)  # the first contender now waits behind the second
    assert second.leads
    assert second.events == ["granted"]


@zookeeper
def test_the_only_contender_is_granted_leadership_again_after_a_rest(make_contender, eventually):
    clock = ManualClock()
    refusals = [OSError("the storage is away")]

    def once():
        if refusals:
            raise refusals.pop()
        contender.election.confirm_leadership(contender.session_id, contender.address)

    contender = make_contender(clock=clock, on_grant=once)
    eventually(lambda: contender.events == ["granted", "revoked"])
    eventually(lambda: contender.connection.children(LATCH) == [])
    clock.advance(contender.connection.session_timeout_s)
    eventually(lambda: contender.leads)
    assert contender.events == ["granted", "revoked", "granted"]


@zookeeper
def test_conformance_L08_an_unexpected_error_of_the_election_ends_the_term_and_the_process(make_contender, eventually):
    contender = make_contender()
    eventually(lambda: contender.leads)

    def mistake(path):
        raise ValueError("a mistake of ours")

    contender.connection.confirm = mistake
    eventually(lambda: "fatal: a mistake of ours" in contender.events)
    assert not contender.leads


@zookeeper
def test_a_contender_that_cannot_stop_leading_ends_the_process(make_contender, connection, eventually):
    contender = make_contender()
    eventually(lambda: contender.leads)
    contender.revoke_leadership = lambda: refuse("a job cannot be suspended")
    connection.delete(contender.election.fence)
    eventually(lambda: "fatal: a job cannot be suspended" in contender.events)


@zookeeper
def test_conformance_M05_an_election_is_started_once_and_never_after_it_was_closed(make_contender):
    contender = make_contender()
    with pytest.raises(ElectionClosed):
        contender.election.start(contender)
    contender.election.close()
    with pytest.raises(ElectionClosed):
        contender.election.start(contender)


@zookeeper
def test_conformance_M25_M26_a_stale_confirmation_publishes_nothing(make_contender, proxy, retrieval, eventually):
    contender = make_contender(hosts=proxy.address)
    eventually(lambda: contender.leads)
    old = contender.session_id
    proxy.cut()
    eventually(lambda: "revoked" in contender.events)
    assert not contender.election.confirm_leadership(old, "http://127.0.0.1:666")
    proxy.heal()
    eventually(lambda: contender.leads)
    assert not contender.election.confirm_leadership(old, "http://127.0.0.1:666")
    found = retrieval.wait(10)
    assert (found.address, found.session_id) == (contender.address, contender.session_id)


@zookeeper
def test_two_contenders_never_lead_together(make_contender, zookeeper_hosts, eventually):
    proxies = [TcpProxy(zookeeper_hosts) for _ in range(2)]
    contenders = [make_contender(f"http://127.0.0.1:{number}", proxy.address) for number, proxy in enumerate(proxies)]
    together = []
    done = threading.Event()

    def observe():
        first, second = contenders
        while not done.wait(0.0005):
            session_id = first.session_id
            # `first` led both before and after `second` was seen leading, so both led at that moment.
            if session_id and first.leads and second.leads and first.election.has_leadership(session_id):
                together.append((session_id, second.session_id))

    observer = threading.Thread(target=observe)
    observer.start()
    try:
        leaders = set()
        for _ in range(10 if IS_CI else 50):
            eventually(lambda: any(contender.leads for contender in contenders))
            index = next(index for index, contender in enumerate(contenders) if contender.leads)
            ended = contenders[index].session_id
            leaders.add(index)
            proxies[index].cut()
            eventually(lambda index=index, ended=ended: not contenders[index].election.has_leadership(ended))
            proxies[index].heal()
    finally:
        done.set()
        observer.join()
        for contender, proxy in zip(contenders, proxies, strict=True):
            contender.election.close()
            contender.connection.close()
            proxy.close()
    assert together == []
    assert leaders == {0, 1}


@zookeeper
def test_conformance_L21_L23_the_leader_is_unknown_without_a_connection_and_the_same_after_it(
    make_contender, connect, proxy, eventually
):
    make_contender()
    connection = connect(proxy.address)
    retrieval = ZooKeeperLeaderRetrieval(connection, SystemClock())
    known = retrieval.wait(10)
    proxy.cut()
    eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    assert retrieval.current() is None
    assert retrieval.wait(0.05) is None
    proxy.heal()
    assert retrieval.wait(20) == known


@zookeeper
def test_conformance_L24_a_new_leader_is_distinguished_from_the_old_one(make_contender, retrieval, eventually):
    first = make_contender("http://127.0.0.1:1")
    old = retrieval.wait(10)
    assert retrieval.wait(0.05, other_than=old.session_id) is None
    make_contender("http://127.0.0.1:2")
    threading.Thread(target=first.election.close).start()
    assert retrieval.wait(20, other_than=old.session_id).address == "http://127.0.0.1:2"


@zookeeper
def test_invalid_leader_information_is_not_a_leader(connection, retrieval):
    connection.ensure("leader/rest_server")
    connection.commit([Create(CONNECTION_INFO, b"\xac\xed\x00\x05")])
    assert retrieval.current() is None


def test_standalone_leads_from_the_start_with_a_random_session():
    sessions = set()
    for _ in range(2):
        election = StandaloneLeaderElection()
        contender = Contender(election, "http://127.0.0.1:1")
        election.start(contender)
        assert contender.leads
        assert StandaloneLeaderRetrieval(election).current().address == "http://127.0.0.1:1"
        sessions.add(contender.session_id)
        with pytest.raises(ElectionClosed):
            election.start(contender)
        election.close()
        assert contender.events == ["granted", "revoked"]
        assert StandaloneLeaderRetrieval(election).current() is None
    assert len(sessions) == 2


def test_standalone_is_not_the_leader_that_was_lost():
    election = StandaloneLeaderElection()
    election.start(Contender(election, "http://127.0.0.1:1"))
    retrieval, session_id = StandaloneLeaderRetrieval(election), election.information.session_id
    assert retrieval.wait(0, other_than=session_id) is None
    for lost in (None, "", "~"):  # these IDs sort before and after every session ID
        assert retrieval.wait(0, other_than=lost) == election.information
    election.close()


def test_standalone_ignores_another_session():
    election = StandaloneLeaderElection()
    election.start(Contender(election, "http://127.0.0.1:1"))
    assert not election.confirm_leadership("another", "http://127.0.0.1:666")
    assert election.information.address == "http://127.0.0.1:1"
