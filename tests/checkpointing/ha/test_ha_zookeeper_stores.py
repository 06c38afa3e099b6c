"""The checkpoint store and the ID counter over a real ZooKeeper."""

from __future__ import annotations

import itertools
import struct
import threading

import pytest

from checkpointing.ha.checkpoint_id_counter import (
    MAX_ID,
    StandaloneCheckpointIDCounter,
    ZooKeeperCheckpointIDCounter,
)
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore, handle_name
from checkpointing.ha.errors import ConnectionUnavailable, CounterOverflow, CounterUnavailable, NodeNotEmpty
from checkpointing.ha.zookeeper import ConnectionState, Create
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.model.status import JobStatus

pytestmark = pytest.mark.zookeeper

CHECKPOINTS = "jobs/job/checkpoints"
COUNTER = "jobs/job/checkpoint_id_counter"


@pytest.fixture
def make_store(connect, files):
    """Return a function that opens a store as another job manager does, over a new connection."""

    def make(num_retained=1):
        handles = ZooKeeperStateHandleStore(connect(), CHECKPOINTS)
        return HandleCompletedCheckpointStore(handles, num_retained, files.load)

    return make


def ids(checkpoints):
    return [checkpoint.checkpoint_id for checkpoint in checkpoints]


def test_conformance_E35_the_subsumed_one_is_forgotten_and_returned(make_store, files, connection):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    assert ids(store.add_checkpoint(files.completed(2))) == [1]
    assert connection.children(CHECKPOINTS) == [handle_name(2)]


def test_conformance_E38_recovery_keeps_all_and_the_next_add_subsumes(make_store, files):
    earlier = make_store(num_retained=3)
    for number in (0, 1, 2):
        earlier.add_checkpoint(files.completed(number))
    earlier.shutdown(JobStatus.SUSPENDED)
    store = make_store(num_retained=3)
    store.recover()
    assert ids(store.checkpoints) == [0, 1, 2]
    assert store.latest_id == 2
    assert ids(store.add_checkpoint(files.completed(3))) == [0]


def test_conformance_E36_E39_finishing_leaves_nothing_to_recover(make_store, files):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    assert ids(store.shutdown(JobStatus.FINISHED)) == [1]
    successor = make_store()
    successor.recover()
    assert ids(successor.checkpoints) == []


def test_conformance_E40_suspending_keeps_the_checkpoint_and_releases_the_lock(make_store, files, connection):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    assert ids(store.shutdown(JobStatus.SUSPENDED)) == []
    assert ids(store.checkpoints) == []
    assert connection.children(f"{CHECKPOINTS}/{handle_name(1)}/locks") == []
    successor = make_store()
    successor.recover()
    assert list(successor.checkpoints) == [files.completed(1)]


def test_conformance_E42_a_lock_of_one_job_manager_keeps_another_from_deleting(make_store, files, connection):
    first, second = make_store(), make_store()
    first.add_checkpoint(files.completed(1))
    second.recover()
    assert ids(first.add_checkpoint(files.completed(2))) == []
    assert handle_name(1) in connection.children(CHECKPOINTS)
    assert ids(second.add_checkpoint(files.completed(3))) == [1]


def test_a_handle_is_small_and_has_the_location_of_the_checkpoint(make_store, files, connection):
    make_store().add_checkpoint(files.completed(5))
    data = connection.get(f"{CHECKPOINTS}/{'0' * 18}5").data
    assert b'"location":"/checkpoints/' in data
    assert len(data) < 200


def test_conformance_F01_the_first_id_is_one(connection):
    assert ZooKeeperCheckpointIDCounter(connection, COUNTER).get() == 1
    assert StandaloneCheckpointIDCounter().get() == 1


@pytest.mark.parametrize("standalone", [True, False])
def test_conformance_F03_concurrent_ids_are_unique_and_ascend_in_every_thread(connection, standalone):
    counter = StandaloneCheckpointIDCounter() if standalone else ZooKeeperCheckpointIDCounter(connection, COUNTER)
    given = [[] for _ in range(4)]

    def take(mine):
        mine.extend(counter.get_and_increment() for _ in range(25))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*given)) == list(range(1, 101))
    assert all(mine == sorted(mine) for mine in given)
    assert counter.get() == 101


@pytest.mark.parametrize("standalone", [True, False])
def test_conformance_F04_a_set_count_is_the_next_id(connection, standalone):
    counter = StandaloneCheckpointIDCounter() if standalone else ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.set_count(1337)
    assert (counter.get(), counter.get_and_increment(), counter.get()) == (1337, 1337, 1338)


def test_ids_ascend_across_job_managers(connect):
    first, second = (ZooKeeperCheckpointIDCounter(connect(), COUNTER) for _ in range(2))
    assert [counter.get_and_increment() for counter in (first, first, second, first)] == [1, 2, 3, 4]


def test_the_node_is_the_one_that_flinks_tools_read(connection):
    ZooKeeperCheckpointIDCounter(connection, COUNTER).get_and_increment()
    assert connection.get(COUNTER).data == struct.pack(">i", 2)


def test_conformance_F05_finishing_deletes_the_node_and_a_missing_one_is_fine(connection):
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.get_and_increment()
    counter.shutdown(JobStatus.FINISHED)
    assert connection.find(COUNTER) is None
    counter.shutdown(JobStatus.FINISHED)


def test_conformance_F07_without_a_connection_the_shutdown_fails(connect):
    connection = connect()
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.get()
    connection.close()
    with pytest.raises(ConnectionUnavailable):
        counter.shutdown(JobStatus.FINISHED)


def test_conformance_F08_a_child_node_fails_the_shutdown_until_it_is_removed(connection):
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.get()
    connection.commit([Create(f"{COUNTER}/child")])
    with pytest.raises(NodeNotEmpty):
        counter.shutdown(JobStatus.FINISHED)
    connection.delete(f"{COUNTER}/child")
    counter.shutdown(JobStatus.FINISHED)
    assert connection.find(COUNTER) is None


@pytest.mark.parametrize("status", [JobStatus.SUSPENDED, JobStatus.RUNNING])
def test_conformance_F09_suspending_keeps_the_node(connection, status):
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.get_and_increment()
    counter.shutdown(status)
    assert ZooKeeperCheckpointIDCounter(connection, COUNTER).get() == 2


def test_the_largest_id_is_an_error_not_a_negative_number(connection):
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    counter.set_count(MAX_ID - 1)
    assert counter.get_and_increment() == MAX_ID - 1
    with pytest.raises(CounterOverflow):
        counter.get_and_increment()
    with pytest.raises(ValueError, match="between 0"):
        counter.set_count(MAX_ID + 1)


def test_a_partitioned_counter_refuses_and_continues_after_the_partition(connect, proxy, eventually):
    connection = connect(proxy.address)
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER)
    assert counter.get_and_increment() == 1
    proxy.cut()
    eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    with pytest.raises(CounterUnavailable, match=r"SUSPENDED|LOST"):
        counter.get_and_increment()
    proxy.heal()
    eventually(lambda: connection.state is ConnectionState.CONNECTED)
    assert counter.get_and_increment() == 2


def test_an_increment_without_an_answer_returns_no_id_and_repeats_none(connect, proxy):
    # The counter requests the fence right before each write. From the second write on, answers are lost.
    writes = iter([lambda: None, proxy.swallow_replies])
    counter = ZooKeeperCheckpointIDCounter(
        connect(proxy.address, operation_timeout_s=5.0), COUNTER, lambda: next(writes)()
    )
    observer = ZooKeeperCheckpointIDCounter(connect(), COUNTER)
    observer.set_count(1)
    assert counter.get_and_increment() == 1
    with pytest.raises(CounterUnavailable):
        counter.get_and_increment()
    assert observer.get_and_increment() == 3


def test_the_counter_of_an_ended_term_refuses(connection):
    connection.commit([Create("term")])
    counter = ZooKeeperCheckpointIDCounter(connection, COUNTER, lambda: "term")
    assert counter.get_and_increment() == 1
    connection.delete("term")
    with pytest.raises(CounterUnavailable):
        counter.get_and_increment()
