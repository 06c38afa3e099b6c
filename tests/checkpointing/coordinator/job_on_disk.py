"""A job's coordinator over real files and a real store: tests start one job manager after the other, and its driver.

The files in `directory` and the stores of `open_stores` survive a job manager; `kill` loses everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from checkpointing.clock import ManualClock
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.ports import CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.durable_files import write_durably
from checkpointing.ha.checkpoint_id_counter import CheckpointIDCounter, StandaloneCheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.jobs.coordinator_runner import CoordinatorRunner, CoordinatorSteps
from checkpointing.model.checkpoint import CompletedCheckpoint, RetentionPolicy
from checkpointing.model.configuration import UNLIMITED_FAILURES, CheckpointConfiguration
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
    DeclineCheckpoint,
    StateFile,
    SubtaskMetrics,
    TriggerCheckpoint,
)
from checkpointing.model.status import JobStatus
from checkpointing.storage import FileCheckpointStorage, SavepointRoots, read_metadata
from checkpointing.storage.claims import JobClaims
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.layout import unused_file
from checkpointing.storage.savepoint_intents import SavepointIntents
from tests.checkpointing.doubles import STATEFUL, ManualIo, ManualTimer, RecordingTasks

OpenStores = Callable[[str, int], tuple[HandleCompletedCheckpointStore, CheckpointIDCounter]]


class SurvivingHandles(InMemoryStateHandleStore):
    """A handle store in memory that outlives a job manager, for tests whose subject is not the store."""

    durable = True


def surviving_stores() -> OpenStores:
    """Return a function that opens the same handles and the same counter for each job manager of a job."""
    handles: dict[str, SurvivingHandles] = {}
    counters: dict[str, StandaloneCheckpointIDCounter] = {}

    def open_stores(job_id: str, num_retained: int) -> tuple[HandleCompletedCheckpointStore, CheckpointIDCounter]:
        kept = handles.setdefault(job_id, SurvivingHandles())
        counter = counters.setdefault(job_id, StandaloneCheckpointIDCounter())
        return HandleCompletedCheckpointStore(kept, num_retained, read_metadata), counter

    return open_stores


class KillableIo(ManualIo):
    """An I/O executor that can die: work that has begun may still be done, but its callbacks are not called."""

    def __init__(self, *, inline: bool) -> None:
        super().__init__(inline=inline)
        self._begun: list[Callable[[], object]] = []

    def submit(self, work, on_done, on_error):  # type: ignore[no-untyped-def]
        if self.inline:
            super().submit(work, on_done, on_error)
            return
        entry: list[Callable[[], object]] = [work]
        self._begun.append(work)

        def done(result: object) -> None:
            self._begun.remove(entry[0])
            on_done(result)

        def failed(error: Exception) -> None:
            self._begun.remove(entry[0])
            on_error(error)

        super().submit(work, done, failed)

    def die(self, num_done: int) -> None:
        begun, self._begun = self._begun, []
        self._queue.clear()
        for work in begun[:num_done]:
            try:
                work()
            except Exception:  # noqa: BLE001  (the job manager is dead, so no callback receives the error)
                continue


@dataclass
class Snapshotting:
    """The work of a driver on one checkpoint. `owed` has the subtasks that it has not acknowledged."""

    message: TriggerCheckpoint
    shared: tuple[str, ...]
    owed: list[int]


class JobOnDisk:
    """A job with its job manager and driver. `claimed` is the location of the snapshot that the job claims."""

    def __init__(
        self,
        directory: Path,
        job_id: str,
        open_stores: OpenStores,
        *,
        files: LocalFiles | None = None,
        inline: bool = True,
        clock: ManualClock | None = None,
        num_retained: int = 2,
        claimed: str | None = None,
        config: CheckpointConfiguration | None = None,
    ) -> None:
        self.job_id = job_id
        self.clock = clock or ManualClock()
        self.claimed = claimed
        self.futures: list[Future[CompletedCheckpoint]] = []
        self.completed_ids: list[int] = []
        self.triggered_ids: list[int] = []
        self.left_behind: list[str] = []
        self._files = files or LocalFiles()
        self._inline = inline
        self._directory = directory
        self._open_stores = open_stores
        self._num_retained = num_retained
        self._config = config or CheckpointConfiguration(
            timeout_ms=60_000,
            max_concurrent=2,
            tolerable_failures=UNLIMITED_FAILURES,
            retention=RetentionPolicy.RETAIN_ON_CANCELLATION,
            savepoint_directory=str(directory / "savepoints"),
        )
        self.start()

    # --- the job manager ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new job manager that recovers the job as JobCheckpoints does."""
        self.timer = ManualTimer(self.clock)
        self.io = KillableIo(inline=True)
        self.tasks = RecordingTasks()
        self.work: list[Snapshotting] = []
        self.num_seen = 0
        self.job_failures: list[str] = []
        self.store, id_counter = self._open_stores(self.job_id, self._num_retained)
        self.intents = SavepointIntents(self._directory / "intents", self.job_id)
        self.storage = FileCheckpointStorage(
            str(self._directory / "checkpoints"),
            self.job_id,
            files=self._files,
            savepoint_roots=SavepointRoots([str(self._directory / "savepoints")]),
            intents=self.intents,
        )
        self.claims = JobClaims(self.job_id, self.storage.job_directory, self._files)
        coordinator = CheckpointCoordinator(
            JobIdentity(self.job_id, "wordcount", "wordcount:main"),
            self.tasks.session_id,
            self._config,
            self.clock,
            lambda: CheckpointPlan((STATEFUL,), ready=True),
        )
        self.stats = coordinator.stats
        self.coordinator = CoordinatorRunner(
            coordinator,
            CoordinatorSteps(self.storage, self.store, id_counter),
            io=self.io,
            timer=self.timer,
            send=self.tasks.send,
            fail_job=lambda message, error: self.job_failures.append(message),
            left_behind=lambda what, error: self.left_behind.append(f"{what}: {error}"),
        )
        self._recover()
        self.sweep_once_completed()
        self.io.inline = self._inline

    def _recover(self) -> None:
        self.coordinator.recover().result(timeout=0)
        known = [c.checkpoint_id for c in self.store.checkpoints if not c.properties.claimed]
        self.found = list(self.storage.found(known))
        recorded = self._recorded_first_id()
        self.recovered_ids = [checkpoint.checkpoint_id for checkpoint in self.store.checkpoints]
        self.first_id = recorded or max([self.storage.last_id(), *self.recovered_ids]) + 1
        self.coordinator.found(self.found, self.first_id)
        self.sweep()
        if recorded is None:  # as before the job's first attempt, when no driver has written files
            write_durably(self._record, str(self.first_id))
        if self.claimed is not None and not self.store.checkpoints:
            self._take_over(self.claimed)
        if (newest := self.coordinator.latest_completed) is not None:
            self.coordinator.restored(newest, is_savepoint=False)

    @property
    def _record(self) -> Path:
        return self._directory / f"{self.job_id}.first_id"

    def _recorded_first_id(self) -> int | None:
        return int(self._record.read_text()) if self._record.exists() else None

    def sweep_once_completed(self) -> None:
        """Sweep orphaned files after the next completed checkpoint, while the driver runs."""
        self.coordinator.next_completed().add_done_callback(lambda below: self.sweep(below.result()))

    def sweep(self, below: int | None = None) -> None:
        """Sweep as a job manager does before its first attempt, or with `below` as while a driver runs."""
        retained = [c for c in self.store.checkpoints if not c.properties.claimed]
        kept = (*self.recovered_ids, *self.coordinator.uncertain_ids)
        swept = self.storage.sweep(retained, (), lambda: True, kept, below=below, first_id=self.first_id)
        self.coordinator.swept(swept.checkpoint_ids)
        self.coordinator.unused([unused_file(name) for name in swept.unused])
        self.storage.sweep_savepoints(lambda: True)
        dropped = bool(retained) and all(c.location != self.claimed for c in self.store.checkpoints)
        if self.claimed is not None and dropped:
            self.claims.finish_discarding(self.claimed)

    def _take_over(self, location: str) -> None:
        self.claims.claim(location)
        is_outside_job_directory = self.claims.is_outside_job_directory(location)
        self.coordinator.claim(read_metadata(location), is_outside_job_directory=is_outside_job_directory).result(
            timeout=0
        )

    def kill(self, num_done: int = 0) -> None:
        """Kill the job manager. The first `num_done` pieces of its work in progress are still done."""
        self.io.die(num_done)
        self.intents.abandon()
        self.start()

    def end(self, status: JobStatus, *, is_saved: bool = True) -> list[Exception | None]:
        closed = self.coordinator.shutdown(status, is_saved=is_saved)
        self.io.run_all()
        if status.globally_terminal and self.claimed is not None:
            self.claims.give_up(self.claimed)
        if status.globally_terminal:
            self._record.unlink(missing_ok=True)
        return [closed.result(timeout=0)]

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def trigger(self) -> Future[CompletedCheckpoint]:
        return self._noted(self.coordinator.trigger_checkpoint())

    def trigger_savepoint(self) -> Future[CompletedCheckpoint]:
        return self._noted(self.coordinator.trigger_savepoint(None))

    def _noted(self, future: Future[CompletedCheckpoint]) -> Future[CompletedCheckpoint]:
        self.futures.append(future)
        future.add_done_callback(self._note_completion)
        return future

    def _note_completion(self, future: Future[CompletedCheckpoint]) -> None:
        if future.exception() is None:
            self.completed_ids.append(future.result().checkpoint_id)

    def checkpoint(self, *shared: str) -> CompletedCheckpoint:
        """Complete one checkpoint and return it."""
        return self._completed(self.trigger(), shared)

    def savepoint(self) -> CompletedCheckpoint:
        return self._completed(self.trigger_savepoint(), ())

    def _completed(self, future: Future[CompletedCheckpoint], shared: Sequence[str]) -> CompletedCheckpoint:
        self.io.run_all()
        while not future.done():
            self.begin_snapshot(*shared)
            self.acknowledge(self.work[-1], all_of_them=True)
            self.io.run_all()
        return future.result(timeout=0)

    # --- the driver -------------------------------------------------------------------------------------------------

    def begin_snapshot(self, *shared: str) -> None:
        """Begin the next triggered checkpoint. `shared` has the contents of the files that belong into the pool."""
        message = self.tasks.triggered[self.num_seen]
        self.num_seen += 1
        self.triggered_ids.append(message.checkpoint_id)
        names = shared if message.kind is CheckpointKind.CHECKPOINT else ()
        self.work.append(Snapshotting(message, names, list(range(STATEFUL.parallelism))))

    def acknowledge(self, work: Snapshotting, *, all_of_them: bool = False) -> None:
        while work.owed:
            subtask = work.owed.pop()
            if not work.owed:
                self.work.remove(work)
            self.coordinator.acknowledge(self._acknowledgement(work, subtask))
            if not all_of_them:
                return

    def write_only(self, work: Snapshotting) -> None:
        """Write all files of the checkpoint without an acknowledgement."""
        for subtask in work.owed:
            self._written(work.message, subtask, work.shared if subtask == 0 else ())

    def acknowledges_nothing_more(self, work: Snapshotting) -> None:
        self.work.remove(work)

    def decline(self, work: Snapshotting) -> None:
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED.name
        session_id, checkpoint_id = self.tasks.session_id, work.message.checkpoint_id
        self.coordinator.decline(DeclineCheckpoint(session_id, self.job_id, 1, checkpoint_id, reason, ""))

    def _acknowledgement(self, work: Snapshotting, subtask: int) -> AcknowledgeCheckpoint:
        message = work.message
        return AcknowledgeCheckpoint(
            session_id=self.tasks.session_id,
            job_id=self.job_id,
            attempt=1,
            checkpoint_id=message.checkpoint_id,
            vertex_id=STATEFUL.id,
            subtask=subtask,
            metrics=SubtaskMetrics(checkpointed_size=10, state_size=20),
            files=self._written(message, subtask, work.shared if subtask == 0 else ()),
            batches={"q": 7},
        )

    def _written(self, message: TriggerCheckpoint, subtask: int, shared: Sequence[str]) -> tuple[StateFile, ...]:
        """Write a subtask's files and return them.

        If the checkpoint's directory is gone, write none: the driver knows that the checkpoint has ended.
        """
        directory = Path(message.directory)
        own = f"q/state/own-{subtask}"
        location = own if message.kind is not CheckpointKind.CHECKPOINT else f"{directory.name}/{own}"
        files = [_put(directory, own, location, own)]
        pool = directory.parent / "shared"
        files += [replace(_put(pool, name, f"shared/{name}", name), shared=True) for name in shared]
        return tuple(files)


def _put(snapshot: Path, name: str, location: str, text: str) -> StateFile:
    content, path = text.encode(), snapshot / name
    if snapshot.is_dir() and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return StateFile(f"state/{location}", location, len(content), hashlib.sha256(content).hexdigest())
