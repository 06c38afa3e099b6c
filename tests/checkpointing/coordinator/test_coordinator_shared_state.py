"""Shared files exist as long as a retained or pending checkpoint needs them, and no longer."""

from __future__ import annotations

from tests.checkpointing.doubles import SOURCE, STATEFUL, CoordinatorHarness, shared_file


def test_a_reused_file_survives_the_checkpoint_that_created_it(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("a"), shared_file("b")))
    harness.complete_one((shared_file("b"),))
    assert harness.storage.shared == {"shared/b"}
    harness.complete_one(())
    assert harness.storage.shared == set()


def test_conformance_a01_an_aborted_checkpoint_removes_only_unshared_files() -> None:
    harness = CoordinatorHarness(tolerable_failures=1)
    harness.complete_one((shared_file("a"),))
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(2, SOURCE.id, 0, files=(shared_file("a"), shared_file("b")))

    harness.decline(2)

    assert harness.storage.shared == {"shared/a"}


def test_a_file_that_a_pending_checkpoint_may_rely_on_is_not_removed_under_it() -> None:
    """The driver found the file in the pool and will acknowledge it. No other checkpoint uses the file."""
    harness = CoordinatorHarness(max_concurrent=2, tolerable_failures=5)
    harness.coordinator.trigger_checkpoint()
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id, 0, files=(shared_file("a"),))
    harness.decline(1)
    assert harness.storage.shared == {"shared/a"}

    harness.acknowledge_all(2, (shared_file("a"),))

    assert harness.storage.shared == {"shared/a"}
    assert harness.storage.shared_discarded == []


def test_no_checkpoint_starts_while_shared_files_are_being_removed(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("a"),))
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(2, SOURCE.id, 0)
    harness.acknowledge(2, STATEFUL.id, 0)
    harness.io.inline = False
    harness.acknowledge(2, STATEFUL.id, 1)
    harness.io.run_next()  # writes the metadata
    harness.io.run_next()  # store: checkpoint 1 is dropped, so its directory and file "a" must be removed
    assert harness.io.num_queued == 2

    harness.coordinator.trigger_checkpoint()
    assert harness.io.num_queued == 2  # the trigger waits, so no ID is requested
    harness.io.run_all()

    assert harness.storage.shared == set()
    assert harness.triggered_ids == [1, 2, 3]


def test_unreferenced_files_are_removed_even_if_checkpoints_overlap() -> None:
    harness = CoordinatorHarness(max_concurrent=2, interval_ms=10, timeout_ms=10_000_000)
    harness.coordinator.start_periodic()
    harness.advance(1)
    for number in range(1, 20):
        checkpoint_id = harness.coordinator.pending_ids[0]
        harness.acknowledge_all(checkpoint_id, (shared_file(f"f{number}"),))
        harness.advance(1)
    assert len(harness.storage.shared) <= 5
    assert len(harness.storage.shared_discarded) >= 14


def test_the_shared_files_of_a_late_acknowledgement_are_removed() -> None:
    harness = CoordinatorHarness(tolerable_failures=1)
    harness.coordinator.trigger_checkpoint()
    harness.decline(1)
    harness.acknowledge(1, SOURCE.id, 0, files=(shared_file("late"),))
    assert harness.storage.shared == set()


def test_a_file_of_an_unknown_task_is_removed_with_its_checkpoint(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, "c" * 32, 0, files=(shared_file("odd"),))
    harness.acknowledge_all(1)
    harness.complete_one()
    assert harness.storage.shared == set()


def test_a_checkpoint_that_the_store_cannot_remove_keeps_its_files(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("a"),))
    take = harness.store.add_checkpoint
    harness.store.add_checkpoint = lambda checkpoint: take(checkpoint)[:0]  # type: ignore[method-assign]

    harness.complete_one((shared_file("b"),))

    assert harness.storage.shared == {"shared/a", "shared/b"}
    assert harness.storage.discarded == []


def test_shared_files_are_not_removed_while_a_checkpoint_is_being_triggered(harness: CoordinatorHarness) -> None:
    """The driver would list the pool before the removal, and use a file that is then removed."""
    harness = CoordinatorHarness(tolerable_failures=1)
    harness.coordinator.trigger_checkpoint()
    harness.decline(1)
    harness.io.inline = False
    harness.coordinator.trigger_checkpoint()
    assert harness.io.num_queued == 1  # the only effect is the request for an ID

    harness.acknowledge(1, SOURCE.id, 0, files=(shared_file("late"),))

    assert harness.io.num_queued == 1  # no file is removed
    harness.io.run_all()
    harness.acknowledge_all(2, (shared_file("late"),))
    harness.io.run_all()
    assert harness.storage.shared == {"shared/late"}
