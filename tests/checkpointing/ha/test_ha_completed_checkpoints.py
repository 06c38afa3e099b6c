"""The rules of the store, with handles in memory. See test_ha_zookeeper_stores.py for handles in ZooKeeper."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.completed_checkpoints import (
    CheckpointHandle,
    HandleCompletedCheckpointStore,
    StoreShutDown,
    handle_name,
)
from checkpointing.ha.errors import CheckpointsUnreadable, ConnectionUnavailable, LeadershipLost
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.model.messages import CheckpointKind
from checkpointing.model.status import JobStatus


class SharedHandles(InMemoryStateHandleStore):
    """Handles that outlive a store, as in ZooKeeper. They have failure switches and can be listed in any order."""

    durable = True

    def __init__(self):
        super().__init__()
        self.add_error = None
        self.remove_error = None
        self.held_by_others = set()
        self.release_error = None
        self.released_all = False

    def add_and_lock(self, name, handle):
        if self.add_error:
            raise self.add_error
        super().add_and_lock(name, handle)

    def release_and_try_remove(self, name):
        if self.remove_error:
            raise self.remove_error
        return name not in self.held_by_others and super().release_and_try_remove(name)

    def release_all(self):
        if self.release_error:
            raise self.release_error
        self.released_all = True


@pytest.fixture
def handles():
    return SharedHandles()


@pytest.fixture
def make_store(handles, files):
    return lambda num_retained=1, kept=None: HandleCompletedCheckpointStore(kept or handles, num_retained, files.load)


def ids(checkpoints):
    return [checkpoint.checkpoint_id for checkpoint in checkpoints]


def test_conformance_E10_the_latest_is_the_one_added_last(make_store, files):
    store = make_store(num_retained=2)
    store.add_checkpoint(files.completed(1))
    store.add_checkpoint(files.completed(2))
    assert store.latest == files.completed(2)


def test_conformance_E11_the_oldest_is_removed_beyond_the_retained_number(make_store, files):
    store = make_store(num_retained=2)
    dropped = [ids(store.add_checkpoint(files.completed(number))) for number in (1, 2, 3, 4)]
    assert dropped == [[], [], [1], [2]]
    assert ids(store.checkpoints) == [3, 4]


def test_conformance_E12_an_empty_store_has_no_latest(make_store):
    store = make_store()
    assert store.latest is None
    assert list(store.checkpoints) == []


def test_conformance_E14_finishing_forgets_all_and_returns_them_for_discarding(make_store, handles, files):
    store = make_store(num_retained=3)
    for number in (1, 2, 3):
        store.add_checkpoint(files.completed(number))
    assert ids(store.shutdown(JobStatus.FINISHED)) == [1, 2, 3]
    assert list(store.checkpoints) == []
    assert handles.names() == []


def test_conformance_E15_the_latest_id_is_zero_when_empty(make_store, files):
    store = make_store()
    assert store.latest_id == 0
    store.add_checkpoint(files.completed(7))
    assert store.latest_id == 7


def test_an_unexpected_error_of_the_old_handle_does_not_fail_the_new_checkpoint(make_store, handles, files):
    """The new handle is stored. If the checkpoint counted as failed, its files would be deleted."""
    store = make_store()
    store.add_checkpoint(files.completed(1))
    handles.remove_error = RuntimeError("nobody expected this")
    assert list(store.add_checkpoint(files.completed(2))) == [], "the files of the old one stay"
    assert ids(store.checkpoints) == [2]


def test_after_an_unexpected_error_the_new_handle_may_be_stored(make_store, handles, files):
    store = make_store()
    handles.add_error = RuntimeError("nobody expected this")
    with pytest.raises(PossibleInconsistentState, match="nobody expected this"):
        store.add_checkpoint(files.completed(1))
    assert list(store.checkpoints) == []


def test_a_checkpoint_that_was_added_is_not_withdrawn(make_store, handles, files):
    """If the checkpoint counted as withdrawn, its files would be deleted."""
    store = make_store()
    store.add_checkpoint(files.completed(1))
    assert not store.withdraw(1)
    assert (ids(store.checkpoints), handles.names()) == ([1], [handle_name(1)])


def test_while_its_handle_may_be_there_a_checkpoint_is_not_withdrawn(make_store, handles, files):
    store = make_store()
    handles.add_and_lock(handle_name(1), b"")  # an add that was executed, but whose answer was lost
    handles.remove_error = ConnectionUnavailable("away")
    assert not store.withdraw(1)
    handles.remove_error = None
    assert store.withdraw(1)
    assert handles.names() == []


@pytest.mark.parametrize(
    "error", [LeadershipLost("over"), ConnectionUnavailable("away"), ValueError("too large")], ids=lambda e: str(e)
)
def test_an_error_that_excludes_a_stored_handle_is_raised_unchanged(make_store, handles, files, error):
    handles.add_error = error
    with pytest.raises(type(error)):
        make_store().add_checkpoint(files.completed(1))


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.SUSPENDED])
def test_conformance_E16_standalone_shutdown_returns_all_checkpoints_for_every_status(make_store, files, status):
    store = make_store(kept=InMemoryStateHandleStore())
    store.add_checkpoint(files.completed(1))
    assert ids(store.shutdown(status)) == [1]


def test_conformance_E18_a_failing_removal_does_not_fail_the_add(make_store, handles, files):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    handles.remove_error = ConnectionUnavailable("no answer")
    assert list(store.add_checkpoint(files.completed(2))) == []
    assert ids(store.checkpoints) == [2]


def test_conformance_E23_recovered_checkpoints_are_sorted(make_store, files):
    earlier = make_store(num_retained=3)
    for number in (2, 10, 1):
        earlier.add_checkpoint(files.completed(number))
    store = make_store(num_retained=3)
    store.recover()
    assert ids(store.checkpoints) == [1, 2, 10]


def test_conformance_E24_while_one_cannot_be_read_now_the_recovery_fails_and_may_be_repeated(make_store, files):
    earlier = make_store(num_retained=2)
    earlier.add_checkpoint(files.completed(1))
    earlier.add_checkpoint(files.completed(2))
    files.failures = 1
    store = make_store(num_retained=2)
    with pytest.raises(OSError, match="does not answer"):
        store.recover()
    assert list(store.checkpoints) == []
    store.recover()
    assert ids(store.checkpoints) == [1, 2]
    assert list(store.unreadable) == []


def test_missing_checkpoint_is_skipped_reported_and_its_handle_kept(make_store, handles, files):
    earlier = make_store(num_retained=2)
    earlier.add_checkpoint(files.completed(1))
    earlier.add_checkpoint(files.completed(2))
    files.unreadable.add(files.completed(2).location)
    store = make_store(num_retained=2)
    store.recover()
    assert ids(store.checkpoints) == [1]
    assert [entry.name for entry in store.unreadable] == [handle_name(2)]
    assert handle_name(2) in handles.names()


def test_conformance_E31_E34_recovery_fails_loudly_with_the_cause_when_nothing_can_be_read(make_store, files):
    make_store().add_checkpoint(files.completed(1))
    files.unreadable.add(files.completed(1).location)
    with pytest.raises(CheckpointsUnreadable, match=r"1: MetadataMissing: .*chk-1: there is no _metadata"):
        make_store().recover()


def test_a_damaged_handle_counts_as_unreadable(make_store, handles):
    handles.add_and_lock(handle_name(1), b"\xac\xed\x00\x05")
    with pytest.raises(CheckpointsUnreadable):
        make_store().recover()


def test_recovery_is_empty_only_when_there_were_no_handles(make_store):
    store = make_store()
    store.recover()
    assert list(store.checkpoints) == []


@pytest.mark.parametrize("error", [ConnectionUnavailable("gone"), PossibleInconsistentState("who knows")])
def test_conformance_E26_a_failed_add_leaves_the_list_as_it_was(make_store, handles, files, error):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    handles.add_error = error
    with pytest.raises(type(error)):
        store.add_checkpoint(files.completed(2))
    assert ids(store.checkpoints) == [1]


def test_conformance_E27_a_globally_terminal_status_removes_every_handle(make_store, handles, files):
    store = make_store(num_retained=8)
    for number in range(8):
        store.add_checkpoint(files.completed(number))
    assert len(store.shutdown(JobStatus.CANCELED)) == 8
    assert handles.names() == []


def test_conformance_E28_another_status_removes_nothing_and_releases_the_locks(make_store, handles, files):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    assert list(store.shutdown(JobStatus.CANCELLING)) == []
    assert handles.released_all
    assert handles.names() == [handle_name(1)]
    assert list(store.checkpoints) == []


def test_suspending_without_a_connection_is_not_an_error(make_store, handles, files):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    handles.release_error = ConnectionUnavailable("the leadership went with the connection")
    assert list(store.shutdown(JobStatus.SUSPENDED)) == []
    assert list(store.checkpoints) == []


def test_checkpoint_locked_by_another_job_manager_is_not_discarded(make_store, handles, files):
    store = make_store()
    store.add_checkpoint(files.completed(1))
    handles.held_by_others.add(handle_name(1))
    assert list(store.add_checkpoint(files.completed(2))) == []


def test_a_store_that_was_shut_down_refuses_to_add_and_repeats_its_shutdown_quietly(make_store, files):
    store = make_store()
    store.shutdown(JobStatus.SUSPENDED)
    with pytest.raises(StoreShutDown):
        store.add_checkpoint(files.completed(1))
    assert list(store.shutdown(JobStatus.FINISHED)) == []


def test_at_least_one_must_be_retained(make_store):
    with pytest.raises(ValueError, match="not 0"):
        make_store(num_retained=0)


def test_a_handle_has_the_location_and_the_kind_of_the_checkpoint():
    handle = CheckpointHandle(5, "s3://bucket/job/savepoint-1", CheckpointKind.SAVEPOINT)
    assert CheckpointHandle.decode(handle.encode()) == handle
    with pytest.raises(ValueError, match="version 9"):
        CheckpointHandle.decode(handle.encode().replace(b'"version":1', b'"version":9'))
