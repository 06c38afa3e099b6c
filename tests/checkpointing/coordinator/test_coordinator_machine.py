"""Random sequences of events: IDs ascend, no files leak, no needed file is lost, and the counts are consistent."""

from __future__ import annotations

from concurrent.futures import Future

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import UNLIMITED_FAILURES
from checkpointing.model.messages import CheckpointKind, StateFile, TriggerCheckpoint
from checkpointing.model.status import JobStatus
from tests.checkpointing.doubles import STATEFUL, CoordinatorHarness, private_file, shared_file
from tests.profile import examples

NAMES = st.sets(st.sampled_from("abcdef"), max_size=3)


class Snapshotting:
    """The work of a driver on one checkpoint. The driver has chosen its files; some may be in the pool already."""

    def __init__(self, message: TriggerCheckpoint, files: tuple[StateFile, ...], owed: list[tuple[str, int]]) -> None:
        self.message = message
        self.files = files
        self.owed = owed


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness = CoordinatorHarness(
            inline_io=False,
            max_concurrent=2,
            num_retained=2,
            tolerable_failures=UNLIMITED_FAILURES,
            vertices=(STATEFUL,),
        )
        self.futures: list[Future[CompletedCheckpoint]] = []
        self.relied_on: dict[int, set[str]] = {}
        self.work: list[Snapshotting] = []
        self.num_seen = 0

    # Actions of people and timers

    @rule()
    def trigger_checkpoint(self) -> None:
        self.futures.append(self.harness.coordinator.trigger_checkpoint())

    @rule(synchronous=st.booleans())
    def trigger_savepoint(self, synchronous: bool) -> None:
        coordinator = self.harness.coordinator
        self.futures.append(
            coordinator.trigger_synchronous_savepoint(None) if synchronous else coordinator.trigger_savepoint(None)
        )

    @rule()
    def expire(self) -> None:
        self.harness.advance(61)

    @rule()
    def lose_the_driver(self) -> None:
        """Lose the driver, whose messages are ignored from then on."""
        self.harness.coordinator.abort_pending(CheckpointFailureReason.TASK_FAILURE)
        self.work.clear()
        self.num_seen = len(self.harness.tasks.triggered)

    @rule()
    def suspend(self) -> None:
        self.harness.coordinator.stop_periodic()

    # Events of the environment

    @precondition(lambda self: self.harness.io.num_queued > 0)
    @rule(data=st.data())
    def finish_some_io(self, data: st.DataObject) -> None:
        self.harness.io.run_next(data.draw(st.integers(0, self.harness.io.num_queued - 1)))

    @precondition(lambda self: self.harness.io.num_queued > 0)
    @rule()
    def finish_all_io(self) -> None:
        self.harness.io.run_all()

    @rule(where=st.integers(0, 4), taken=st.booleans())
    def a_step_goes_wrong(self, where: int, taken: bool) -> None:
        """Break one part, run all queued work so that it fails there, and repair the part."""
        harness = self.harness
        error = OSError("full")
        harness.counter.error = error if where == 0 else None
        harness.storage.initialize_error = error if where == 1 else None
        harness.storage.write_error = error if where == 2 else None
        harness.store.add_error = {3: error, 4: PossibleInconsistentState("lost")}.get(where)
        harness.store.add_anyway = where == 4 and taken
        harness.io.run_all()
        self.mend()

    def mend(self) -> None:
        harness = self.harness
        harness.counter.error = harness.storage.initialize_error = harness.storage.write_error = None
        harness.store.add_error = None

    # Actions of the driver

    @precondition(lambda self: self.num_seen < len(self.harness.tasks.triggered))
    @rule(names=NAMES)
    def begin_snapshot(self, names: set[str]) -> None:
        """Begin a snapshot. Files that are in the pool are only referred to; the others will be uploaded."""
        message = self.harness.tasks.triggered[self.num_seen]
        self.num_seen += 1
        files: list[StateFile] = [private_file(message.checkpoint_id, "x")]
        if message.kind is CheckpointKind.CHECKPOINT:
            files += [shared_file(name) for name in sorted(names)]
            there = {file.location for file in files} & self.harness.storage.shared
            self.relied_on[message.checkpoint_id] = there
        self.work.append(Snapshotting(message, tuple(files), list(self.harness.subtasks)))

    @rule(names=NAMES)
    def a_checkpoint_goes_well(self, names: set[str]) -> None:
        """Complete a checkpoint. Random steps alone complete few, and the rules for retained checkpoints need many."""
        self.trigger_checkpoint()
        self.harness.io.run_all()
        while self.num_seen < len(self.harness.tasks.triggered):
            self.begin_snapshot(names)
            work = self.work[-1]
            while work.owed:
                self.acknowledge_next(work, again=False)
            self.harness.io.run_all()

    @precondition(lambda self: bool(self.work))
    @rule(data=st.data())
    def acknowledge_the_rest(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.work))
        while work.owed:
            self.acknowledge_next(work, again=False)

    @precondition(lambda self: bool(self.work))
    @rule(data=st.data(), again=st.booleans())
    def acknowledge(self, data: st.DataObject, again: bool) -> None:
        """Acknowledge a checkpoint, sometimes twice, and sometimes after it has ended."""
        self.acknowledge_next(data.draw(st.sampled_from(self.work)), again)

    def acknowledge_next(self, work: Snapshotting, again: bool) -> None:
        vertex_id, subtask = work.owed.pop()
        if not work.owed:
            self.work.remove(work)
        checkpoint_id = work.message.checkpoint_id
        present = self.relied_on.get(checkpoint_id, set())
        uploads = tuple(file for file in work.files if file.location not in present)
        for _ in range(2 if again else 1):
            self.harness.acknowledge(checkpoint_id, vertex_id, subtask, files=work.files, uploads=uploads)

    @precondition(lambda self: bool(self.work))
    @rule(data=st.data())
    def decline(self, data: st.DataObject) -> None:
        self.harness.decline(data.draw(st.sampled_from(self.work)).message.checkpoint_id)

    # Invariants

    @invariant()
    def ids_ascend(self) -> None:
        ids = self.harness.triggered_ids
        assert ids == sorted(set(ids))

    @invariant()
    def no_checkpoint_was_written_without_its_shared_files(self) -> None:
        assert self.harness.storage.missing_when_written == set()

    @invariant()
    def everything_a_retained_checkpoint_needs_is_there(self) -> None:
        for checkpoint in self.harness.store.checkpoints:
            assert checkpoint.location in self.harness.storage.directories
            assert {file.location for file in checkpoint.files if file.shared} <= self.harness.storage.shared

    @invariant()
    def retained_checkpoints_are_in_order(self) -> None:
        ids = [checkpoint.checkpoint_id for checkpoint in self.harness.store.checkpoints]
        assert ids == sorted(set(ids))

    @invariant()
    def each_id_completes_once_and_is_not_aborted_too(self) -> None:
        completed = [message.checkpoint_id for message in self.harness.tasks.completed]
        aborted = [message.checkpoint_id for message in self.harness.tasks.aborted]
        assert len(set(completed)) == len(completed)
        assert len(set(aborted)) == len(aborted)
        assert not set(completed) & set(aborted)

    @invariant()
    def the_counts_add_up(self) -> None:
        snapshot = self.harness.stats.snapshot()
        counts = snapshot.counts
        assert counts.total == counts.in_progress + counts.completed + counts.failed
        assert counts.in_progress == len(self.harness.coordinator.pending_ids)
        succeeded = [future for future in self.futures if future.done() and future.exception(timeout=0) is None]
        assert counts.completed == len(succeeded)

    def teardown(self) -> None:
        harness = self.harness
        outcomes = harness.shut_down(JobStatus.FINISHED)
        harness.io.run_all()

        assert outcomes == [None]
        assert all(future.done() for future in self.futures)
        savepoints = {
            future.result(timeout=0).location
            for future in self.futures
            if future.exception(timeout=0) is None and future.result(timeout=0).properties.is_savepoint
        }
        assert harness.storage.directories == savepoints
        assert harness.storage.shared == set()
        assert harness.timer.pending == []


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(
    max_examples=examples(100),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
