from __future__ import annotations

import threading

import pytest
from kazoo import exceptions as kazoo_errors

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.errors import (
    ConnectionUnavailable,
    LeadershipLost,
    NodeExists,
    NodeMissing,
    ZooKeeperRefusal,
)
from checkpointing.ha.zookeeper import ConnectionState, Create, translated
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore

pytestmark = pytest.mark.zookeeper

PATH = "jobs/job/checkpoints"


@pytest.fixture
def store(connection):
    return ZooKeeperStateHandleStore(connection, PATH)


@pytest.fixture
def standby(connect):
    return ZooKeeperStateHandleStore(connect(), PATH)


def locks(connection, name):
    return connection.children(f"{PATH}/{name}/locks")


def test_conformance_N01_a_handle_is_persistent_with_one_ephemeral_lock(store, connection):
    store.add_and_lock("1", b"handle")
    node = connection.get(f"{PATH}/1")
    assert (node.data, node.owner_session) == (b"handle", 0)
    assert connection.children(f"{PATH}/1") == ["locks"]
    [lock] = locks(connection, "1")
    assert connection.get(f"{PATH}/1/locks/{lock}").owner_session == connection.session_id


def test_conformance_N02_a_leftover_that_is_marked_for_deletion_is_replaced(store, connection):
    connection.ensure(PATH)
    connection.commit([Create(f"{PATH}/1", b"old")])
    store.add_and_lock("1", b"new")
    assert store.get_and_lock("1") == b"new"


def test_a_name_is_used_once(store):
    store.add_and_lock("1", b"first")
    with pytest.raises(NodeExists):
        store.add_and_lock("1", b"second")
    assert store.get_and_lock("1") == b"first"


def test_conformance_N04_removing_a_missing_handle_succeeds(store):
    assert store.release_and_try_remove("1")


def test_conformance_N05_another_holder_keeps_the_handle_until_it_releases(store, standby, connection):
    store.add_and_lock("1", b"handle")
    standby.get_and_lock("1")
    assert not store.release_and_try_remove("1")
    assert len(locks(connection, "1")) == 1
    assert not store.release_and_try_remove("1"), "repeated, still held"
    assert standby.get_and_lock("1") == b"handle"
    assert standby.release_and_try_remove("1")
    assert store.names() == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(kazoo_errors.BadArgumentsError, id="test_conformance_N09"),
        pytest.param(kazoo_errors.NoNodeError, id="test_conformance_N10"),
        pytest.param(kazoo_errors.NoAuthError, id="test_conformance_N11"),
        pytest.param(kazoo_errors.BadVersionError, id="test_conformance_N12"),
        pytest.param(kazoo_errors.AuthFailedError, id="test_conformance_N13"),
        pytest.param(kazoo_errors.InvalidACLError, id="test_conformance_N14"),
        pytest.param(kazoo_errors.SessionMovedError, id="test_conformance_N15"),
        pytest.param(kazoo_errors.NotReadOnlyCallError, id="test_conformance_N16"),
        kazoo_errors.NodeExistsError,
    ],
)
def test_conformance_N09_to_N16_a_refusal_proves_that_nothing_was_written(error):
    assert isinstance(translated(error(), "create"), ZooKeeperRefusal)


@pytest.mark.parametrize(
    "error",
    [
        kazoo_errors.ConnectionLoss,
        kazoo_errors.OperationTimeoutError,
        kazoo_errors.SessionExpiredError,
        kazoo_errors.ConnectionClosedError,
        kazoo_errors.SystemZookeeperError,
        kazoo_errors.MarshallingError,
    ],
)
def test_any_other_error_leaves_the_outcome_open(error):
    assert isinstance(translated(error(), "create"), ConnectionUnavailable)


def test_conformance_N06_an_add_without_an_answer_may_have_happened(connect, proxy, eventually):
    connection = connect(proxy.address, operation_timeout_s=1.0)
    store = ZooKeeperStateHandleStore(connection, PATH)
    proxy.cut()
    eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    # Skip the check for leftovers, so that only the write uses the broken connection.
    store._remove_if_marked = lambda name: None
    with pytest.raises(PossibleInconsistentState, match=f"{PATH}/1"):
        store.add_and_lock("1", b"handle")


def test_conformance_N08_a_retried_transaction_that_was_already_committed_is_a_success(
    connect, proxy, standby, eventually
):
    connection = connect(proxy.address, session_timeout_s=8.0, operation_timeout_s=20.0)
    store = ZooKeeperStateHandleStore(connection, PATH)
    connection.ensure(PATH)  # so that the first request whose answer is lost is the transaction
    proxy.swallow_replies()
    adding = threading.Thread(target=store.add_and_lock, args=("1", b"handle"))
    adding.start()
    eventually(lambda: standby.names() == ["1"])
    proxy.cut()
    proxy.heal()
    adding.join(30)
    assert not adding.is_alive()
    assert store.get_and_lock("1") == b"handle"
    assert store.release_and_try_remove("1"), "only this store holds it"


def test_conformance_N17_a_handle_is_replaced(store):
    store.add_and_lock("1", b"old")
    store.replace("1", b"new")
    assert store.get_and_lock("1") == b"new"


def test_conformance_N19_replacing_a_missing_handle_is_an_error(store):
    with pytest.raises(NodeMissing):
        store.replace("1", b"new")


def test_a_handle_whose_lock_is_lost_before_the_commit_is_not_replaced(store, connection):
    """Another process may be removing the handle with its lock, so the check and the write are one transaction."""

    def lock_goes():
        connection.delete(f"{PATH}/1/locks/{locks(connection, '1')[0]}")

    store.add_and_lock("1", b"old")
    store._fence = lock_goes
    with pytest.raises(NodeMissing):
        store.replace("1", b"new")
    assert connection.get(f"{PATH}/1").data == b"old"


def test_only_a_holder_may_replace(store, standby):
    store.add_and_lock("1", b"old")
    with pytest.raises(NodeMissing, match="holds no lock on it"):
        standby.replace("1", b"new")


def test_conformance_N31_N36_N45_marked_for_deletion_is_named_but_does_not_exist(store, connection):
    store.add_and_lock("1", b"handle")
    connection.commit([Create(f"{PATH}/2", b"marked")])
    assert not store.exists("2")
    assert store.exists("1")
    assert store.get_all_and_lock() == [("1", b"handle")]
    assert store.names() == ["1", "2"]


def test_conformance_N32_N40_a_missing_handle_is_an_error_and_leaves_no_lock(store, connection):
    with pytest.raises(NodeMissing):
        store.get_and_lock("1")
    assert store.names() == []


def test_conformance_N33_N34_all_handles_are_sorted_by_name(store, connection):
    for name in ("0000000000000000010", "0000000000000000002", "0000000000000000001"):
        store.add_and_lock(name, name.encode())
    names = [name for name, _ in store.get_all_and_lock()]
    assert names == sorted(names)
    assert len(names) == 3


def test_conformance_N37_removing_removes(store, connection):
    store.add_and_lock("1", b"handle")
    assert store.release_and_try_remove("1")
    assert connection.find(f"{PATH}/1") is None


def test_conformance_N41_a_dead_session_frees_its_locks_only(connect, standby, expire_session, eventually):
    connection = connect()
    ZooKeeperStateHandleStore(connection, PATH).add_and_lock("1", b"handle")
    expire_session(connection)
    assert standby.exists("1")
    assert standby.get_and_lock("1") == b"handle"
    eventually(lambda: standby.release_and_try_remove("1"))
    assert standby.names() == []


def test_conformance_N42_N43_a_released_handle_is_kept(store, standby, connection):
    for name in ("1", "2"):
        store.add_and_lock(name, b"handle")
    store.release("1")
    assert locks(connection, "1") == []
    store.release_all()
    assert locks(connection, "2") == []
    assert store.names() == ["1", "2"]
    assert standby.release_and_try_remove("1")


def test_clearing_also_removes_handles_that_others_locked(store, standby):
    store.add_and_lock("1", b"handle")
    standby.get_and_lock("1")
    store.clear_entries()
    assert standby.names() == []


def test_large_state_is_not_stored_in_zookeeper(store):
    with pytest.raises(ValueError, match="at most 1024"):
        store.add_and_lock("1", b"x" * 1025)


def test_a_write_of_an_ended_term_is_refused_and_changes_nothing(connection, connect):
    connection.commit([Create("term")])
    store = ZooKeeperStateHandleStore(connection, PATH, lambda: "term")
    store.add_and_lock("1", b"handle")
    connect().delete("term")
    with pytest.raises(LeadershipLost):
        store.add_and_lock("2", b"handle")
    with pytest.raises(LeadershipLost):
        store.replace("1", b"other")
    with pytest.raises(LeadershipLost):
        store.release_and_try_remove("1")
    with pytest.raises(LeadershipLost):
        store.get_and_lock("1")
    with pytest.raises(LeadershipLost):
        store.clear_entries()
    assert store.names() == ["1"]
    assert connection.get(f"{PATH}/1").data == b"handle"


def test_a_removal_in_an_ended_term_releases_the_lock_and_keeps_the_handle(connection, connect, standby):
    connection.commit([Create("term")])
    store = ZooKeeperStateHandleStore(connection, PATH, lambda: "term")
    store.add_and_lock("1", b"handle")
    connect().delete("term")
    with pytest.raises(LeadershipLost):
        store.release_and_try_remove("1")
    assert locks(connection, "1") == [], "the next leader may remove it"
    assert standby.get_and_lock("1") == b"handle"
    assert standby.release_and_try_remove("1")


def test_reads_continue_after_the_session_expired(store, connection, expire_session, eventually):
    store.add_and_lock("1", b"handle")
    session = connection.session_id
    expire_session(connection)
    eventually(lambda: connection.session_id not in (None, session))
    assert store.get_all_and_lock() == [("1", b"handle")]
    store.add_and_lock("2", b"handle")
