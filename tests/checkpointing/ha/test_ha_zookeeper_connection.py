from __future__ import annotations

import threading

import pytest

from checkpointing.durable_files import write_durably
from checkpointing.ha.errors import ConnectionUnavailable, LeadershipLost, NodeExists, NodeMissing
from checkpointing.ha.zookeeper import ConnectionState, Create, Delete, SetData

zookeeper = pytest.mark.zookeeper


@zookeeper
def test_the_session_timeout_is_the_one_that_the_server_granted(connect):
    assert connect(session_timeout_s=0.1).session_timeout_s == 1.0, "two ticks of the server at least"
    assert connect(session_timeout_s=4.0).session_timeout_s == 4.0


@zookeeper
def test_a_transaction_is_atomic(connection):
    connection.commit([Create("a"), Create("b", b"1")])
    with pytest.raises(NodeExists, match="transaction on b"):
        connection.commit([SetData("b", b"2", -1), Create("c"), Create("a")])
    assert connection.get("b").data == b"1"
    assert connection.find("c") is None
    with pytest.raises(NodeMissing):
        connection.commit([Delete("c"), Delete("a")])
    assert connection.find("a") is not None


@zookeeper
def test_a_watch_fires_once_however_often_it_was_set(connection, connect):
    fired = threading.Semaphore(0)

    class Watcher:
        def on_watch(self, _event):
            fired.release()

    watcher = Watcher()
    for _ in range(3):
        assert connection.find("a", watcher.on_watch) is None
    other = connect()
    other.commit([Create("a")])
    assert fired.acquire(timeout=20)
    other.delete("a")
    connection.sync("a")
    assert not fired.acquire(blocking=False)


@zookeeper
def test_confirming_proves_that_a_node_exists(connection):
    connection.commit([Create("a")])
    connection.confirm("a")
    connection.delete("a")
    with pytest.raises(NodeMissing):
        connection.confirm("a")


@zookeeper
def test_a_closed_connection_reports_it_and_may_be_closed_again(connect):
    connection = connect()
    connection.close()
    connection.close()
    assert connection.state is ConnectionState.LOST
    with pytest.raises(ConnectionUnavailable):
        connection.get("")
    with pytest.raises(ConnectionUnavailable):
        connection.retrying(lambda: connection.children(""))


@zookeeper
def test_an_expired_deadline_ends_waiting_even_with_a_connection(connection):
    """Otherwise work that fails on a healthy connection would be repeated for ever."""
    assert connection.wait_until_connected(1.0)
    assert not connection.wait_until_connected(0.0)
    assert not connection.wait_until_connected(-1.0)


@zookeeper
def test_repeatable_work_is_repeated_over_a_break(connect, proxy, eventually):
    connection = connect(proxy.address)
    proxy.cut()
    eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    threading.Timer(0.2, proxy.heal).start()
    assert connection.retrying(lambda: connection.children("")) == []


def test_a_durable_file_replaces_the_old_one_and_leaves_no_other_file(tmp_path):
    file = tmp_path / "new" / "file.json"
    write_durably(file, "1")
    write_durably(file, "2")
    assert file.read_text() == "2"
    assert list(file.parent.iterdir()) == [file]


def test_a_write_that_is_called_off_right_before_it_counts_leaves_the_old_file(tmp_path):
    def call_off():
        raise LeadershipLost

    file = tmp_path / "file.json"
    write_durably(file, "1")
    with pytest.raises(LeadershipLost):
        write_durably(file, "2", call_off)
    assert file.read_text() == "1"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "file.json"
    write_durably(file, "1")
    with pytest.raises(UnicodeEncodeError):
        write_durably(file, "\ud800")
    assert file.read_text() == "1"
    assert list(tmp_path.iterdir()) == [file]
