"""Recovery at the start of a leader's term, restores, and the shutdown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind
from checkpointing.model.status import JobStatus
from tests.checkpointing.doubles import CoordinatorHarness, reason_of, shared_file

Reason = CheckpointFailureReason


def recovered(harness: CoordinatorHarness) -> list[CompletedCheckpoint | Exception | None]:
    future = harness.coordinator.recover()
    return [future.exception(timeout=0) or future.result(timeout=0)]


def successor_of(old: CoordinatorHarness, **changes: object) -> CoordinatorHarness:
    """Return the next job manager's coordinator, with the same storage, counter and stored checkpoints."""
    new = CoordinatorHarness(**changes)
    new.storage.directories = old.storage.directories
    new.storage.shared = old.storage.shared
    new.counter.value = old.counter.value
    new.store.stored_before = list(old.store.checkpoints)
    return new


def test_recovery_returns_the_newest_and_registers_the_files_of_the_retained_ones() -> None:
    old = CoordinatorHarness(num_retained=2)
    old.complete_one((shared_file("a"), shared_file("b")))
    newest = old.complete_one((shared_file("b"),))
    harness = successor_of(old, num_retained=1)

    assert recovered(harness) == [newest]
    assert harness.coordinator.latest_completed == newest

    assert harness.complete_one((shared_file("c"),)).checkpoint_id == 3
    assert harness.storage.shared == {"shared/c"}
    assert harness.storage.directories == {"/checkpoints/chk-3"}


def test_conformance_c16_an_empty_store_recovers_to_nothing(harness: CoordinatorHarness) -> None:
    assert recovered(harness) == [None]


def test_an_unreadable_store_is_reported(harness: CoordinatorHarness) -> None:
    harness.store.recover_error = RuntimeError("handles exist and none can be read")
    (outcome,) = recovered(harness)
    assert isinstance(outcome, RuntimeError)


def test_conformance_a39_a_restore_shows_in_the_statistics(harness: CoordinatorHarness) -> None:
    checkpoint = harness.complete_one()
    harness.coordinator.restored(checkpoint, is_savepoint=False)

    snapshot = harness.stats.snapshot()
    assert snapshot.counts.restored == 1
    assert snapshot.latest_restored is not None
    assert snapshot.latest_restored.checkpoint_id == 1
    assert snapshot.latest_restored.external_path == "/checkpoints/chk-1"
    assert not snapshot.latest_restored.is_savepoint
    assert harness.complete_one().checkpoint_id == 2
    assert [message.full for message in harness.tasks.triggered] == [False, False]


def test_ids_continue_after_the_savepoint_that_a_new_job_starts_from(harness: CoordinatorHarness) -> None:
    savepoint = replace(CoordinatorHarness().complete_one(), checkpoint_id=161, job_id="f" * 32)
    harness.coordinator.restored(savepoint, is_savepoint=True)
    assert harness.complete_one().checkpoint_id == 162
    assert harness.complete_one().checkpoint_id == 163


def test_an_old_savepoint_never_decreases_the_ids(harness: CoordinatorHarness) -> None:
    first = harness.complete_one()
    for _ in range(4):
        harness.complete_one()
    harness.coordinator.restored(first, is_savepoint=True)
    assert harness.complete_one().checkpoint_id == 6


@pytest.mark.parametrize("policy", list(RetentionPolicy))
@pytest.mark.parametrize("is_saved", [True, False])
@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED])
def test_conformance_e07_e08_the_retention_decides_which_checkpoints_the_shutdown_removes(
    policy: RetentionPolicy, status: JobStatus, is_saved: bool
) -> None:
    harness = CoordinatorHarness(retention=policy)
    checkpoint = harness.complete_one((shared_file("a"),))

    goes = checkpoint.properties.discard_on(status, is_saved=is_saved)
    assert harness.shut_down(status, is_saved=is_saved) == [None]

    if goes:
        assert (harness.storage.directories, harness.storage.shared) == (set(), set())
    else:
        assert (harness.storage.directories, harness.storage.shared) == ({checkpoint.location}, {"shared/a"})
    latest = harness.stats.snapshot().latest_completed
    assert latest is not None
    assert latest.discarded is goes
    assert harness.counter.shut_down_with is status


@pytest.mark.parametrize(
    ("retention", "status", "is_saved", "goes"),
    [
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FINISHED, True, True),
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FINISHED, False, False),
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FAILED, False, True),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.FINISHED, True, True),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.FINISHED, False, False),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.CANCELED, True, True),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.FAILED, False, False),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.FINISHED, True, True),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.FINISHED, False, False),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.CANCELED, True, False),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.FAILED, False, False),
    ],
)
def test_retained_checkpoints_are_removed_only_with_a_saved_job(
    retention: RetentionPolicy, status: JobStatus, is_saved: bool, goes: bool
) -> None:
    properties = CheckpointProperties(CheckpointKind.CHECKPOINT, retention)
    assert properties.discard_on(status, is_saved=is_saved) is goes


def successor_that_found(retention: RetentionPolicy, first_id: int) -> tuple[CoordinatorHarness, CompletedCheckpoint]:
    """Return a coordinator that found a checkpoint, which a crash had kept from the store, and the checkpoint."""
    old = CoordinatorHarness(retention=retention)
    found = old.complete_one((shared_file("a"),))
    harness = successor_of(old, retention=retention)
    harness.store.stored_before = []
    assert recovered(harness) == [None]
    harness.coordinator.found([found], first_id)
    return harness, found


@pytest.mark.parametrize("first_id", [1, 2], ids=["of this life", "of an earlier life"])
def test_a_late_acknowledgement_of_a_recovered_checkpoint_removes_no_file_of_it(first_id: int) -> None:
    harness, found = successor_that_found(RetentionPolicy.RETAIN_ON_CANCELLATION, first_id)

    assert not harness.acknowledge(found.checkpoint_id, files=(shared_file("a"),))

    assert harness.storage.shared == {"shared/a"}


@pytest.mark.parametrize(
    ("status", "is_saved", "stays"),
    [(JobStatus.CANCELED, True, True), (JobStatus.FINISHED, False, True), (JobStatus.FINISHED, True, False)],
)
def test_the_retention_decides_about_a_checkpoint_that_was_never_stored(
    status: JobStatus, is_saved: bool, stays: bool
) -> None:
    harness, found = successor_that_found(RetentionPolicy.RETAIN_ON_CANCELLATION, 1)

    assert harness.shut_down(status, is_saved=is_saved) == [None]

    assert (found.location in harness.storage.directories) is stays


def test_a_suspended_job_keeps_all_checkpoints_for_the_next_job_manager(harness: CoordinatorHarness) -> None:
    checkpoint = harness.complete_one((shared_file("a"),))
    assert harness.shut_down(JobStatus.SUSPENDED) == [None]
    assert harness.storage.directories == {checkpoint.location}
    assert harness.storage.shared == {"shared/a"}


def test_a_leader_that_shuts_down_removes_no_shared_file(harness: CoordinatorHarness) -> None:
    """The next leader's first checkpoint may already use the file."""
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, files=(shared_file("a"),))
    assert harness.shut_down(JobStatus.SUSPENDED) == [None]
    assert harness.storage.shared == {"shared/a"}
    assert harness.storage.directories == set()


def test_conformance_b11_after_the_shutdown_nothing_starts() -> None:
    harness = CoordinatorHarness(interval_ms=10_000)
    pending = harness.coordinator.trigger_checkpoint()
    queued = harness.coordinator.trigger_checkpoint()
    harness.shut_down(JobStatus.FINISHED)

    harness.coordinator.start_periodic()
    harness.advance(100)
    late = harness.coordinator.trigger_savepoint(None)

    for future in (pending, queued, late):
        assert reason_of(future) is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert harness.triggered_ids == [1]
    assert harness.storage.directories == set()
    assert not harness.acknowledge(1)


def test_the_shutdown_waits_for_a_checkpoint_that_is_being_stored(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.io.inline = False
    harness.acknowledge_all(1)
    harness.io.run_next()

    outcomes = harness.shut_down(JobStatus.FINISHED)
    assert outcomes == []
    harness.io.run_all()

    assert future.result(timeout=0).checkpoint_id == 1
    assert outcomes == [None]
    assert harness.storage.directories == set()


def test_the_shutdown_ends_when_the_last_directory_is_removed(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("a"),))
    harness.io.inline = False
    outcomes = harness.shut_down(JobStatus.CANCELED)
    while harness.io.num_queued:
        assert outcomes == []
        harness.io.run_next()
    assert outcomes == [None]
    assert (harness.storage.directories, harness.storage.shared) == (set(), set())


def test_conformance_o01_a_store_that_cannot_be_closed_is_reported_and_the_counter_is_closed_all_the_same(
    harness: CoordinatorHarness,
) -> None:
    harness.complete_one()
    harness.store.shutdown_error = OSError("no quorum")
    (error,) = harness.shut_down(JobStatus.FINISHED)
    assert error is harness.store.shutdown_error
    assert harness.counter.shut_down_with is JobStatus.FINISHED
    assert harness.storage.directories == {"/checkpoints/chk-1"}


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED])
def test_only_the_end_of_a_job_removes_its_empty_directories(harness: CoordinatorHarness, status: JobStatus) -> None:
    assert harness.shut_down(status) == [None]
    assert harness.storage.emptied == status.globally_terminal
