"""Starts a job's attempts, one at a time: chooses the snapshot, reserves numbers, launches, adopts and ends drivers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from checkpointing.checkpoint_location.local_recovery import LocalStateUnusable
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.errors import HighAvailabilityError
from checkpointing.ids import stable_id
from checkpointing.jobs.attempt import Attempt
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory, hash_of
from checkpointing.jobs.batch_numbers import BatchCounterUnreadable, BatchNumbersExhausted
from checkpointing.jobs.launcher import DriverProcess, LaunchFailed
from checkpointing.jobs.local_recovery import (
    LocalRecoveryFacts,
    LocalRestore,
    committed_no_batch,
    declared_shared,
    is_enabled,
    is_group_alive,
    local_restore,
    started_no_batch,
)
from checkpointing.jobs.parallelism import requested_parallelism
from checkpointing.jobs.python_environments.failures import EnvironmentFailed
from checkpointing.jobs.python_environments.preparation import Preparation, PreparedPython
from checkpointing.jobs.python_environments.source import EnvironmentSource, in_prepared
from checkpointing.jobs.restore import may_start_empty, refuses_to_write_again, restore_candidates
from checkpointing.jobs.secret_keys import SecretUnreadable
from checkpointing.jobs.services import JobServices
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.driver_spec import DriverSpec, LocalRecoverySpec, RestoreSpec
from checkpointing.model.job_environment import JobEnvironment, without_secrets
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import AfterRestore, ExceptionInfo, VertexKind
from checkpointing.storage.errors import SnapshotUnusable, StorageError, StorageUnreachable
from checkpointing.storage.locations import JOB_MANAGER, scheme_of
from checkpointing.storage.reachability import read_reachable
from checkpointing.storage.verification import local_copy, verify

logger = logging.getLogger(__name__)

_GONE_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.1
# How many seconds pass between log lines which say that a driver still claims the job.
SAY_AFTER_S = 5.0


class AttemptFailed(Exception):
    """The attempt could not start.

    `keep_state`: the job's stored state could not be used and must not be removed. `keep_files`: the files that the
    job's attempts left must stay, too.
    """

    def __init__(self, info: ExceptionInfo, *, keep_state: bool = False, keep_files: bool = False) -> None:
        super().__init__(info.message)
        self.info = info
        self.keep_state = keep_state
        self.keep_files = keep_files


@dataclass(frozen=True)
class Restore:
    """A verified snapshot. `from_savepoint_path`: the job was submitted with this snapshot."""

    checkpoint: CompletedCheckpoint
    location: str
    from_savepoint_path: bool


class AttemptStarter:
    """Starts the attempts of one job.

    `on_bad_candidate` receives each state that could not be used, so none is skipped silently. `recovered`: the
    attempts that an earlier job manager recorded belong to this job; otherwise they belong to another job that had the
    same ID. `graph` may be replaced by one with another parallelism for the next attempt. `first_checkpoint_id` is the
    first checkpoint ID in the job's run; set it before the first attempt if it is known. Attempts are recorded and
    launched only in the term of `session_id`; after that term, LeadershipLost is raised.
    """

    def __init__(
        self,
        graph: JobGraph,
        session_id: str,
        services: JobServices,
        store: HandleCompletedCheckpointStore,
        on_bad_candidate: Callable[[ExceptionInfo], None],
        *,
        recovered: bool = False,
    ) -> None:
        """Raise InvalidConfiguration if the graph's configuration is not valid."""
        self.graph = graph
        JobEnvironment.parse(graph.configuration)
        self._environment_source = EnvironmentSource.parse(graph.configuration)
        self._python: PreparedPython | None = None
        self._preparation_failure = ""
        self._confirm_term = partial(services.high_availability.leader_election.confirm_term, session_id)
        self._services = services
        self._io = services.io_of(graph.job_id)
        self._storage_io = services.storage_io_of(graph.job_id)
        self._store = store
        self._on_bad_candidate = on_bad_candidate
        self.directory = JobDirectory(services.jobs_directory, graph.job_id)
        self.first_checkpoint_id: int | None = None
        self._last_number = 0
        self._recovered = recovered
        self._from_local = is_enabled(graph.configuration)
        self._from_shared = declared_shared(graph.configuration)
        self._refuses_to_write_again = refuses_to_write_again(graph.configuration)
        self._former: AttemptRecord | None = None
        self._writing = asyncio.Lock()

    async def read_record(self) -> AttemptRecord | None:
        """Return the record that an earlier job manager wrote. Raise AttemptRecordUnreadable or OSError."""
        record = await self._io.run(self._read_record)
        self._last_number = record.attempt if record is not None else 0
        self._former = record if self._recovered else None
        self.first_checkpoint_id = None if self._former is None else self._former.first_checkpoint_id
        return record

    def _read_record(self) -> AttemptRecord | None:
        if self._recovered:  # before the read, too: the directory could be mounted after it
            self._require_directory()
        record = self.directory.read_record()
        if record is None and self._recovered:
            self._require_directory()
        return record

    @property
    def is_new_run(self) -> bool:
        """Return whether no attempt of this run of the job has started. Call it after `read_record`."""
        return self._former is None

    async def former(self, record: AttemptRecord) -> Attempt | None:
        """Return the attempt that an earlier job manager left, or None if its driver is known to be gone."""
        if record.ended:
            return None
        attempt = Attempt(record, None, self._services.clock, self._io)
        if record.pod is None and (record.pid is None or record.host != self._services.host_name):
            return attempt
        attempt.process = await self._adopted(record, record.pid)
        return attempt if attempt.process is not None else None

    async def prepare_python(self, preparing: Callable[[Preparation], None]) -> None:
        """Prepare the job's Python environment, if the job requests one. Raise AttemptFailed.

        Called before the attempt begins, because it may take minutes. `preparing` receives the progress.
        """
        source = self._environment_source
        if source is None:
            return
        preparation = Preparation(source.kind, self._services.clock.now_ms(), failure=self._preparation_failure)
        preparing(preparation)
        try:
            self._python = await self._services.environments.prepare(source, preparation)
            self._preparation_failure = preparation.failure = ""
        except EnvironmentFailed as error:
            self._preparation_failure = preparation.failure = str(error)
            info = self._info("PythonEnvironmentFailed", str(error))
            stacktrace = f"{info.stacktrace}\n{error.details}".rstrip()
            info = replace(info, stacktrace=stacktrace, is_mistake=error.is_mistake)
            raise AttemptFailed(info, keep_state=not error.is_mistake) from error

    async def choose_restore(self) -> Restore | LocalRestore | None:
        """Return what the next attempt restores, or None for a job without state.

        Local state of the previous attempt comes first, then the best snapshot that passes verification. Call this
        method once the previous attempt is gone. Raise AttemptFailed if no snapshot is usable. Also raise it if a
        better snapshot than all usable ones cannot be read now; that failure is recoverable.
        """
        return await self._choose_local() or await self._choose_snapshot()

    async def _choose_local(self) -> LocalRestore | None:
        former = self._former
        if former is None or not self._from_local:
            return None
        facts = LocalRecoveryFacts(
            host=self._services.host_name,
            has_snapshot=bool(restore_candidates(self._store.checkpoints, self.graph)),
            rescales=former.parallelism != requested_parallelism(self.graph),
            claims_are_known=self._services.high_availability.attempts.knows_all_machines,
            from_shared=self._from_shared,
        )
        try:
            await self._until_gone(former)
            return await self._io.run(lambda: local_restore(former, facts))
        except LocalStateUnusable as error:
            message = f"The local state of attempt {former.attempt} cannot be used: {error}"
            self._on_bad_candidate(self._info("LocalStateUnusable", message))
            return None

    async def _until_gone(self, former: AttemptRecord) -> None:
        """Wait a few seconds until the processes of the former attempt are gone, because a killed JVM exits late."""
        if former.host != self._services.host_name:
            return
        deadline = self._services.clock.monotonic() + _GONE_WITHIN_S
        while former.pid is not None and self._services.clock.monotonic() < deadline:
            if not await self._io.run(partial(is_group_alive, former.pid)):
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def is_local_state_useless(self, ended: AttemptRecord) -> bool:
        """Return whether the attempt continued local state without a batch, so that a snapshot replaces it next."""
        if not restore_candidates(self._store.checkpoints, self.graph):
            return False
        return await self._io.run(lambda: committed_no_batch(ended))

    async def _choose_snapshot(self) -> Restore | None:
        candidates = restore_candidates(self._store.checkpoints, self.graph)
        refusal = ""
        for candidate in candidates:
            try:
                read = partial(read_reachable, candidate.location, partial(verify, deep=True))
                checkpoint = await self._storage_io.read(candidate.location, read)
            except SnapshotUnusable as error:
                refusal = f"{candidate.label} cannot be restored: {error}"
                self._on_bad_candidate(self._info("SnapshotUnusable", refusal))
            except OSError as error:
                # Do not fall back to an older snapshot: the newest one may be intact, and the next restart reads it
                # again.
                message = f"{candidate.label} cannot be read now: {error}"
                raise AttemptFailed(self._info(type(error).__name__, message), keep_state=True) from error
            else:
                return Restore(checkpoint, candidate.location, candidate.location == self.graph.savepoint_path)
        if candidates and not may_start_empty(self.graph):
            message = f"The job may not start empty: {refusal}"
            if len(candidates) > 1:
                message += f" (the last of {len(candidates)} that were tried)"
            raise AttemptFailed(self._info("NoUsableSnapshot", message, recoverable=False), keep_state=True)
        if not candidates:
            await self._check_empty_start()
        return None

    async def _check_empty_start(self) -> None:
        """Raise AttemptFailed if rows of the job may have been written and sinks would write them a second time."""
        former = self._former
        if former is None or may_start_empty(self.graph):
            return
        again = [sink for sink in former.sinks if sink.after_restore is AfterRestore.WRITTEN_AGAIN]
        claims_are_known = self._services.high_availability.attempts.knows_all_machines
        look = partial(started_no_batch, former, from_shared=self._from_shared, claims_are_known=claims_are_known)
        if again and not await self._io.run(look):
            message = (
                f"The job has no checkpoint, and the files of attempt {former.attempt} cannot be used. Rows of its "
                "batches may have been written, so only a person may start it without state. These queries would "
                f"write such rows a second time: {', '.join(sink.query for sink in again)}"
            )
            info = self._info("NotStartedEmpty", message, recoverable=False)
            raise AttemptFailed(info, keep_state=True, keep_files=True)

    async def note_sinks(self, attempt: Attempt) -> None:
        """Record the sinks of the attempt's queries. On AttemptFailed only the record in memory has them."""
        sinks = tuple(vertex for vertex in attempt.vertices if vertex.kind is VertexKind.SINK)
        if attempt.record.ended or sinks == attempt.record.sinks:
            return
        self._remember(attempt, sinks=sinks)
        await self._change(attempt, sinks=sinks)

    async def prepare(self, restore: Restore | LocalRestore | None, greatest_batch: int = -1) -> Attempt:
        """Store the record of the next attempt durably, before any part of the attempt runs.

        `greatest_batch` is the greatest batch number that this job manager heard from the job's drivers.
        """
        numbers = await self._reserve_numbers(restore, greatest_batch)
        number, secret = self._last_number + 1, secrets.token_urlsafe(32)
        requested, former = requested_parallelism(self.graph), self._former
        newest = self._store.latest
        record = AttemptRecord(
            attempt=number,
            timeline=stable_id(self.graph.job_id, str(number)),
            work_directory=str(self.directory.attempt_directory(number)),
            started_ms=self._services.clock.now_ms(),
            host=self._services.host_name,
            parallelism=requested,
            is_rescaled=former is not None and former.parallelism != requested,
            parallelism_before=former.parallelism if former is not None else None,
            first_checkpoint_id=self.first_checkpoint_id,
            checkpoint_directory=CheckpointConfiguration.parse(self.graph.configuration).checkpoint_directory,
            secret_hash=hash_of(secret),
            newest_checkpoint_id=None if newest is None else newest.checkpoint_id,
            batch_numbers=numbers,
            python_environment=None if self._python is None else self._python.name,
            sinks=former.sinks if former is not None and restore is not None else (),
            pod=self._services.launcher.pod_of(self.graph.configuration, self.graph.job_id, number),
        )
        record = replace(record, first_failure=_first_failure(former, record))
        record = _started_from(record, restore)
        await self._write(record)
        self._last_number = number
        self._former = record
        needed, first_failure = record.local_directory, record.first_failure
        await self._io.run(
            lambda: self.directory.remove_old_attempts(number, needed=needed, first_failure=first_failure)
        )
        return Attempt(record, None, self._services.clock, self._io, secret)

    async def _reserve_numbers(self, restore: Restore | LocalRestore | None, greatest_batch: int) -> BatchNumbers:
        """Reserve the attempt's batch numbers durably before it is recorded. No number is ever reserved twice."""
        try:
            return await self._io.run(partial(self._numbers_for, restore, greatest_batch))
        except (BatchNumbersExhausted, BatchCounterUnreadable) as error:
            info = self._info(type(error).__name__, str(error), recoverable=False)
            raise AttemptFailed(info, keep_state=True) from error
        except OSError as error:
            message = f"The batch numbers of the attempt could not be reserved: {error}"
            raise AttemptFailed(self._info("BatchNumbersNotReserved", message), keep_state=True) from error

    def _numbers_for(self, restore: Restore | LocalRestore | None, greatest_batch: int) -> BatchNumbers:
        self._require_directory()
        match restore:
            case None:
                return self._services.batch_number_counters.begin(self.graph.job_id, self._confirm_term)
            case LocalRestore():
                assert self._former is not None  # noqa: S101 (whose state it is)
                before = self._former.batch_numbers
                if restore.keeps(before):
                    return before
                return self._reserve(before.family, [greatest_batch, *restore.batches.values()])
            case Restore():
                return self._reserve(restore.checkpoint.family, [greatest_batch], restore.checkpoint)

    def _reserve(
        self, family: str, batches: Iterable[int], restored: CompletedCheckpoint | None = None
    ) -> BatchNumbers:
        """Reserve a range behind all known numbers of the family. `batches` are numbers that were used."""
        former, kept = self._former, self._store.checkpoints
        snapshots = [*kept] if restored is None else [*kept, restored]
        ranges = [snapshot.batch_numbers for snapshot in snapshots]
        used = [*batches, *(batch for snapshot in snapshots for batch in snapshot.batches.values())]
        if former is not None:
            ranges.append(former.batch_numbers)
            used += former.restored_batches.values()
        end = max((numbers.end for numbers in ranges if numbers is not None and numbers.family == family), default=0)
        back_to = None if restored is None else restored.batches
        return self._services.batch_number_counters.reserve(family, end, max(used), self._confirm_term, back_to)

    async def extend_numbers(self, attempt: Attempt) -> int | None:
        """Reserve more numbers durably for a running attempt. Return the new end, or None if the numbers are not free.

        On BatchCounterUnreadable, AttemptFailed or OSError the attempt keeps the numbers that it has.
        """
        counters = self._services.batch_number_counters
        longer = await self._io.run(partial(counters.extend, attempt.record.batch_numbers, self._confirm_term))
        if longer is None or attempt.record.ended or attempt.number != self._last_number:
            return None
        await self._change(attempt, batch_numbers=longer)
        return longer.end

    async def begin_final_savepoint(self, attempt: Attempt, directory: str) -> None:
        """Store the directory of the final savepoint before it begins. Raise AttemptFailed or HighAvailabilityError."""
        await self._change(attempt, final_savepoint=directory)

    async def launch(self, attempt: Attempt, restore: Restore | LocalRestore | None) -> None:
        """Start the driver's process. Raise AttemptFailed if it cannot start."""
        try:
            if isinstance(restore, Restore):
                restore = await self._storage_io.run(partial(_within_reach, attempt.record, restore))
            program = await self._io.run(self.directory.program)
            spec = self._spec(attempt, program, restore)
            if isinstance(restore, Restore) and spec.restore is not None:
                since = await self._io.run(partial(self._restored_since, restore.checkpoint))
                others = await self._io.run(partial(self._other_jobs, restore.checkpoint))
                spec = replace(spec, restore=replace(spec.restore, restored_since=since, other_jobs=others))
            attempt.process = await self._io.run(partial(self._launch, spec))
        except FileNotFoundError as error:
            raise AttemptFailed(self._info("ProgramNotFound", str(error), recoverable=False)) from error
        except SecretUnreadable as error:
            raise AttemptFailed(self._info("SecretUnreadable", str(error)), keep_state=True) from error
        except (LaunchFailed, StorageError, BatchCounterUnreadable) as error:
            raise AttemptFailed(self._info("LaunchFailed", str(error))) from error
        attempt.record = replace(attempt.record, pid=attempt.process.pid)
        self._former = attempt.record
        await self._write(attempt.record)

    def _restored_since(self, checkpoint: CompletedCheckpoint) -> dict[str, int]:
        counters = self._services.batch_number_counters
        return counters.restored_since(checkpoint.family, checkpoint.batch_numbers, checkpoint.batches)

    def _other_jobs(self, checkpoint: CompletedCheckpoint) -> tuple[str, ...]:
        """Return the jobs that have not ended, if the snapshot belongs to another job."""
        if checkpoint.job_id == self.graph.job_id:
            return ()
        services = self._services.high_availability
        others = [job_id for job_id in services.job_graphs.job_ids() if job_id != self.graph.job_id]
        return tuple(job_id for job_id in others if not services.job_results.has_result(job_id))

    def _launch(self, spec: DriverSpec) -> DriverProcess:
        self._confirm_term()
        return self._services.launcher.launch(spec)

    async def adopt(self, attempt: Attempt, pid: int) -> None:
        """Watch the process `pid` if it is a driver of this job.

        The driver registered, but an earlier job manager started it.
        """
        process = await self._adopted(attempt.record, pid)
        if attempt.process is None:
            attempt.process = process

    async def end(self, attempt: Attempt, grace_s: float, *, ends_itself: bool = False) -> None:
        """Make sure that the attempt's driver is gone: its process, and its claim on the job. Return when both are.

        `ends_itself`: the driver sent its last message. It gets `grace_s` to close its session before it gets the order
        to end.
        """
        if attempt.process is not None:
            if ends_itself:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(attempt.process.wait(), grace_s)
            await attempt.process.end(grace_s)
            if attempt.process.left_nothing:
                await self._free(attempt)
        await self.wait_until_free()
        attempt.record = replace(attempt.record, ended=True)
        try:
            async with self._writing:
                await self._io.run(partial(self._write_into_existing_directory, attempt.record))
        except (OSError, HighAvailabilityError) as error:
            # If this write fails, the next job manager finds that the driver has ended.
            logger.warning(
                "job %s: the end of attempt %d was not recorded: %s", self.graph.job_id, attempt.number, error
            )

    async def _free(self, attempt: Attempt) -> None:
        """Release the driver's claim.

        The next attempt would otherwise wait until the killed driver's session times out.
        """
        job_id, registry = self.graph.job_id, self._services.high_availability.attempts
        try:
            await self._io.run(lambda: registry.free(job_id, attempt.number))
        except HighAvailabilityError as error:
            logger.info("job %s: the claim of attempt %d ends with its session: %s", job_id, attempt.number, error)

    async def wait_until_free(self) -> None:
        """Wait until no driver claims the job. Wait also if this is unknown: two attempts would corrupt the state."""
        job_id, registry = self.graph.job_id, self._services.high_availability.attempts
        while True:
            try:
                if await self._io.run(lambda: registry.wait_until_free(job_id, SAY_AFTER_S)):
                    return
                logger.warning("job %s: a driver still holds its attempt; the next one waits", job_id)
            except HighAvailabilityError as error:
                logger.warning("job %s: cannot find out now whether a driver holds its attempt: %s", job_id, error)
                await asyncio.sleep(1.0)

    async def _adopted(self, record: AttemptRecord, pid: int | None) -> DriverProcess | None:
        job_id, launcher = self.graph.job_id, self._services.launcher
        if record.pod is None and record.host != self._services.host_name:
            return None
        work = Path(record.work_directory)
        return await self._io.run(lambda: launcher.adopt(pid, job_id, record.attempt, work, record.pod))

    async def _write(self, record: AttemptRecord) -> None:
        async with self._writing:
            await self._write_alone(record)

    async def _change(self, attempt: Attempt, **fields: Any) -> None:
        """Change the record of a running attempt durably. Raise AttemptFailed if it cannot be written."""
        async with self._writing:
            await self._write_alone(replace(attempt.record, **fields))
            self._remember(attempt, **fields)

    def _remember(self, attempt: Attempt, **fields: Any) -> None:
        """Change the attempt's record in memory. Other fields may change while a record is being written."""
        attempt.record = replace(attempt.record, **fields)
        if self._former is not None and self._former.attempt == attempt.number:
            self._former = replace(self._former, **fields)

    async def _write_alone(self, record: AttemptRecord) -> None:
        try:
            await self._io.run(partial(self._write_into_existing_directory, record))
        except OSError as error:
            message = f"The attempt's record could not be written: {error}"
            raise AttemptFailed(self._info("AttemptRecordUnwritable", message), keep_state=True) from error

    def _write_into_existing_directory(self, record: AttemptRecord) -> None:
        """Write the record only into the directory that was made before the job was stored.

        If that directory is missing, its storage may not be mounted. A new directory would then be in the wrong place.
        """
        self._require_directory()
        self.directory.write_record(record, self._confirm_term)

    def _require_directory(self) -> None:
        if not self.directory.path.is_dir():
            raise StorageUnreachable(f"{self.directory.path} is missing; its storage may not be mounted")

    def _spec(self, attempt: Attempt, program: Path, restore: Restore | LocalRestore | None) -> DriverSpec:
        graph, services, record = self.graph, self._services, attempt.record
        return DriverSpec(
            job_id=graph.job_id,
            job_name=graph.name,
            attempt=record.attempt,
            program_path=str(program),
            entry_class=graph.entry_class,
            program_args=graph.program_args,
            parallelism=graph.parallelism,
            configuration=in_prepared(self._python, without_secrets(graph.configuration)),
            work_directory=record.work_directory,
            timeline=record.timeline,
            job_manager_address=services.address,
            lease_s=services.settings.heartbeat_timeout_s,
            restore=self._restore_spec(record, restore) if isinstance(restore, Restore) else None,
            local=self._local_spec(restore) if isinstance(restore, LocalRestore) else None,
            high_availability=services.high_availability.driver_specification,
            token_file=str(services.token_file) if services.token_file else None,
            environment=JobEnvironment.parse(services.secret_keys.opened(graph.configuration)),
            secret=attempt.secret,
            batch_numbers=_new_numbers(record, restore),
        )

    def _restore_spec(self, record: AttemptRecord, restore: Restore) -> RestoreSpec:
        """Return the restore for the driver.

        A person's consent counts until queries of the job start; then restores are automatic.
        """
        is_asked = restore.from_savepoint_path and not self.graph.is_automatic_restore and not record.sinks
        return RestoreSpec(
            directory=restore.checkpoint.location,
            checkpoint_id=restore.checkpoint.checkpoint_id,
            is_savepoint=restore.checkpoint.properties.is_savepoint,
            allow_non_restored_state=self.graph.allow_non_restored_state,
            may_write_again=is_asked or not self._refuses_to_write_again,
        )

    def _local_spec(self, restore: LocalRestore) -> LocalRecoverySpec:
        newest = self._store.latest
        return LocalRecoverySpec(
            restore.work_directory,
            restore.attempt,
            newest_checkpoint=None if newest is None else newest.location,
            of_any_boot=restore.of_any_boot,
        )

    def _info(self, name: str, message: str, *, recoverable: bool = True) -> ExceptionInfo:
        return ExceptionInfo(
            name=name,
            message=message,
            stacktrace=f"{name}: {message}",
            timestamp=self._services.clock.now_ms(),
            recoverable=recoverable,
        )


def _within_reach(record: AttemptRecord, restore: Restore) -> Restore:
    """Copy a snapshot from this process's memory to files, because the driver cannot read that memory."""
    if scheme_of(restore.checkpoint.location) != JOB_MANAGER:
        return restore
    copy = local_copy(restore.checkpoint, Path(record.work_directory) / "restored")
    return replace(restore, checkpoint=copy)


def _first_failure(former: AttemptRecord | None, record: AttemptRecord) -> int | None:
    """Return the attempt that failed first since the last completed checkpoint.

    An attempt that was rescaled did not fail.
    """
    if former is None:
        return None
    if former.first_failure is not None and former.newest_checkpoint_id == record.newest_checkpoint_id:
        return former.first_failure
    return None if record.is_rescaled else former.attempt


def _started_from(record: AttemptRecord, restore: Restore | LocalRestore | None) -> AttemptRecord:
    match restore:
        case Restore():
            return replace(
                record,
                restored_checkpoint_id=restore.checkpoint.checkpoint_id,
                restored_is_savepoint=restore.checkpoint.properties.is_savepoint,
                restored_location=restore.location,
                restored_batches=dict(restore.checkpoint.batches),
            )
        case LocalRestore():
            # Keep the timeline: the batch in flight writes the same rows again, and the sinks recognise them.
            return replace(
                record,
                timeline=restore.timeline,
                local_directory=restore.work_directory,
                restored_batches=restore.batches,
                restored_checkpoint_id=restore.checkpoint_id,
            )
        case None:
            return record


def _new_numbers(record: AttemptRecord, restore: Restore | LocalRestore | None) -> BatchNumbers | None:
    """Return the range that the driver moves the restored batches to, or None if they keep their numbers."""
    if restore is None or (isinstance(restore, LocalRestore) and restore.keeps(record.batch_numbers)):
        return None
    return record.batch_numbers
