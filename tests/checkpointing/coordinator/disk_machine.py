"""Random sequences of events in the life of a job, its job managers and its driver, over real files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.status import JobStatus
from checkpointing.storage import read_metadata, state_file_path, verify
from checkpointing.storage.claims import JobClaims
from tests.checkpointing.coordinator.job_on_disk import JobOnDisk, OpenStores, Snapshotting

NAMES = st.sets(st.sampled_from("abcd"), max_size=2)


class DiskMachine(RuleBasedStateMachine):
    """A state machine of jobs. `owned` has the snapshots that no job may remove, by location."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="waymark-machine-", dir=_fast_disk()))
        self.num_jobs = 0
        self.owned: dict[str, CompletedCheckpoint] = {}
        self.retained: dict[str, CompletedCheckpoint] = {}
        self.num_futures = 0
        self.open_stores = self.stores()
        self.job = self.new_job(None)

    def stores(self) -> OpenStores:
        raise NotImplementedError

    def new_job(self, claimed: str | None) -> JobOnDisk:
        job = JobOnDisk(self.directory, self.next_id, self.open_stores, inline=False, claimed=claimed)
        self.num_jobs += 1
        self.num_futures = 0
        return job

    @property
    def next_id(self) -> str:
        return f"{self.num_jobs + 1:032x}"

    # Actions of people and timers

    @rule()
    def trigger_checkpoint(self) -> None:
        self.job.trigger()

    @rule()
    def trigger_savepoint(self) -> None:
        self.job.trigger_savepoint()

    @rule()
    def expire(self) -> None:
        self.job.timer.advance(61)

    @rule()
    def lose_the_driver(self) -> None:
        self.job.coordinator.abort_pending(CheckpointFailureReason.TASK_FAILURE)
        self.job.work.clear()
        self.job.num_seen = len(self.job.tasks.triggered)

    # Events of the environment

    @precondition(lambda self: self.job.io.num_queued > 0)
    @rule(data=st.data())
    def finish_some_io(self, data: st.DataObject) -> None:
        self.job.io.run_next(data.draw(st.integers(0, self.job.io.num_queued - 1)))

    @rule()
    def finish_all_io(self) -> None:
        self.job.io.run_all()

    @rule(num_done=st.integers(0, 3))
    def kill_the_job_manager(self, num_done: int) -> None:
        self.note_savepoints()
        self.job.kill(num_done)
        self.num_futures = len(self.job.futures)

    @rule(data=st.data(), claims=st.booleans(), claimed_before=st.booleans())
    def start_another_job(self, data: st.DataObject, claims: bool, claimed_before: bool) -> None:
        """Start a job from a snapshot of a former job. `claimed_before`: a job manager died after the claim."""
        self.succeed_with_another_job(data, claims=claims, claimed_before=claimed_before)

    @rule(data=st.data(), before=st.lists(NAMES, max_size=3), after=st.lists(NAMES, max_size=3))
    def a_job_takes_over(self, data: st.DataObject, before: list[set[str]], after: list[set[str]]) -> None:
        """Let a job claim a snapshot and subsume it. Files that the snapshot shares with other snapshots must stay."""
        for names in before:
            self.a_checkpoint_goes_well(names)
        self.succeed_with_another_job(data, claims=True, claimed_before=False)
        for names in after:
            self.a_checkpoint_goes_well(names)

    def succeed_with_another_job(self, data: st.DataObject, *, claims: bool, claimed_before: bool) -> None:
        self.end(JobStatus.CANCELED)
        snapshot = data.draw(st.sampled_from(sorted(self.owned))) if claims and self.owned else None
        if snapshot is not None:
            del self.owned[snapshot]
            if claimed_before:
                JobClaims(self.next_id, str(self.directory / "checkpoints" / self.next_id)).claim(snapshot)
        self.job = self.new_job(snapshot)

    def end(self, status: JobStatus) -> None:
        """End the job. Adds to the store that have begun finish first, so that its content is final."""
        self.job.io.run_all()
        self.needed_snapshots_are_complete()
        assert self.job.end(status) == [None]
        self.note_savepoints()
        assert all(future.done() for future in self.job.futures[self.num_futures :])
        if status is JobStatus.CANCELED:
            self.owned |= self.retained

    # Actions of the driver

    @precondition(lambda self: self.job.num_seen < len(self.job.tasks.triggered))
    @rule(names=NAMES)
    def begin_snapshot(self, names: set[str]) -> None:
        self.job.begin_snapshot(*sorted(names))

    @precondition(lambda self: bool(self.job.work))
    @rule(data=st.data(), all_of_them=st.booleans())
    def acknowledge(self, data: st.DataObject, all_of_them: bool) -> None:
        self.job.acknowledge(self.some_work(data), all_of_them=all_of_them)

    @precondition(lambda self: bool(self.job.work))
    @rule(data=st.data())
    def decline(self, data: st.DataObject) -> None:
        work = self.some_work(data)
        self.job.work.remove(work)
        self.job.decline(work)

    @rule(names=NAMES)
    def a_checkpoint_goes_well(self, names: set[str]) -> None:
        """Complete a checkpoint. Random steps alone complete few, and the rules for retained checkpoints need many."""
        self.lose_the_driver()
        self.job.io.run_all()
        self.job.checkpoint(*sorted(names))

    def some_work(self, data: st.DataObject) -> Snapshotting:
        return self.job.work[data.draw(st.integers(0, len(self.job.work) - 1))]

    # Invariants

    def note_savepoints(self) -> None:
        for future in self.job.futures[self.num_futures :]:
            if future.done() and future.exception(timeout=0) is None and future.result().properties.is_savepoint:
                self.owned[future.result().location] = future.result()

    @invariant()
    def needed_snapshots_are_complete(self) -> None:
        self.retained = {checkpoint.location: checkpoint for checkpoint in self.job.store.checkpoints}
        for location in (*self.owned, *self.retained):
            verify(location)

    @invariant()
    def ids_ascend(self) -> None:
        assert self.job.triggered_ids == sorted(set(self.job.triggered_ids))
        stored = [checkpoint.checkpoint_id for checkpoint in self.job.store.checkpoints]
        assert stored == sorted(set(stored))

    @invariant()
    def an_id_completes_once(self) -> None:
        assert len(set(self.job.completed_ids)) == len(self.job.completed_ids)

    @invariant()
    def the_counts_add_up(self) -> None:
        counts = self.job.stats.snapshot().counts
        assert counts.total == counts.in_progress + counts.completed + counts.failed
        assert counts.in_progress == len(self.job.coordinator.pending_ids)

    def teardown(self) -> None:
        """Kill the job manager once more: the next one must find and remove all leftovers of the earlier ones."""
        try:
            self.kill_the_job_manager(0)
            self.end(JobStatus.FINISHED)
            self.nothing_leaks()
        finally:
            shutil.rmtree(self.directory)

    def nothing_leaks(self) -> None:
        """Assert that only the files of snapshots are left.

        A complete savepoint that a dying job manager did not report belongs to its user as well.
        """
        roots = [self.directory / "checkpoints", self.directory / "savepoints"]
        there = {str(path) for root in roots for path in root.rglob("*") if path.is_file()}
        untold = [read_metadata(str(path.parent)) for path in roots[1].glob("*/_metadata")]
        assert there == _files_of([*self.owned.values(), *untold])
        assert not list((self.directory / "intents").glob("*"))


def _fast_disk() -> str | None:
    """Return a directory in memory if there is one: every step syncs files, and a disk makes them ten times slower."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None


def _files_of(checkpoints: list[CompletedCheckpoint]) -> set[str]:
    files = {state_file_path(checkpoint, file) for checkpoint in checkpoints for file in checkpoint.files}
    return files | {f"{checkpoint.location}/_metadata" for checkpoint in checkpoints}
