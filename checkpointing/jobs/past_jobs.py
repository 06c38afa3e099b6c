"""Cleans up incomplete checkpoints and savepoints of jobs that no longer run here and whose job manager died.

A stored job is recovered and then cleans up its own files. Without high availability no job is stored. Its driver
outlives the job manager by its lease at most, and only after that nothing writes to the job's snapshots. Complete
snapshots stay, independent of the job's retention: someone may want to start from them.

Each job manager without high availability has a separate state directory. If two share one by mistake, only the first
cleans up checkpoints of jobs that it does not know; intents of savepoints have separate locks.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TextIO

from checkpointing.durable_files import make_directory
from checkpointing.ha.services import HighAvailabilityMode
from checkpointing.jobs.attempts import RECORD_NAME, AttemptRecord, AttemptRecordUnreadable, JobDirectory
from checkpointing.jobs.local_recovery import is_group_alive
from checkpointing.jobs.retries import Retries
from checkpointing.jobs.services import JobServices
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage
from checkpointing.storage.savepoint_intents import SavepointIntents, jobs_with_intents

logger = logging.getLogger(__name__)


class PastJobs:
    """Cleans up past jobs. `runs_here(job_id)`: the job runs here, perhaps again, and cleans up its own files."""

    def __init__(self, services: JobServices, retries: Retries, runs_here: Callable[[str], bool]) -> None:
        self._services = services
        self._retries = retries
        self._runs_here = runs_here
        self._lock: TextIO | None = None

    def close(self) -> None:
        """Release the lock, because the leader's term is over."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def sweep(self, session_id: str, recovered: Collection[str]) -> bool:
        """Begin the clean-up of all jobs except the `recovered` ones, each once its driver is certainly gone.

        Return True. Raise OSError if the files of earlier job managers cannot be listed now.
        """
        jobs = await self._services.io.read("the past jobs", self._unfinished)
        began_s = self._services.clock.monotonic()
        for job_id in sorted(jobs - set(recovered)):
            self._retries.again(f"past job {job_id}", partial(self._swept, job_id, session_id, began_s))
        return True

    def _unfinished(self) -> set[str]:
        """Return the jobs with a savepoint that was begun, or with an attempt whose end was not recorded."""
        self._services.temporaries.remove_later()  # this call removes files of interrupted imports
        found = jobs_with_intents(self._services.intents_directory)
        if not self._knows_all_jobs():
            return found
        for path in self._services.jobs_directory.glob(f"*/{RECORD_NAME}"):
            record = self._record(path.parent.name)
            if record is not None and not record.ended:
                found.add(path.parent.name)
        return found

    def _knows_all_jobs(self) -> bool:
        """Return whether every job with a record here that does not run is a past one. Take the lock for that."""
        if self._services.settings.high_availability is not HighAvailabilityMode.NONE:
            return False
        if self._lock is None:
            make_directory(self._services.jobs_directory)
            lock = (self._services.jobs_directory / ".in-use").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                return False
            self._lock = lock
        return True

    async def _swept(self, job_id: str, session_id: str, began_s: float) -> bool:
        leads = partial(self._services.leads, session_id)
        if self._runs_here(job_id) or not leads():
            return True
        try:
            io = self._services.storage_io_of(job_id)
            return await io.run(lambda: self._sweep(job_id, leads, began_s))
        except OSError as error:
            logger.warning("job %s: what its job manager left stays for now: %s", job_id, error)
            return False

    def _sweep(self, job_id: str, leads: Callable[[], bool], began_s: float) -> bool:
        record = self._record(job_id)
        if not self._is_driver_gone(record, began_s):
            return False
        storage = self._storage(job_id, record)
        removed = list(storage.sweep_savepoints(leads))
        if self._lock is not None and record is not None and not record.ended:
            swept = storage.sweep((), (), leads)
            removed += [f"chk-{checkpoint_id}" for checkpoint_id in swept.checkpoint_ids]
            if leads():
                JobDirectory(self._services.jobs_directory, job_id).write_record(replace(record, ended=True))
        if removed:
            logger.info("job %s: removed what was never completed: %s", job_id, ", ".join(removed))
        return True

    def _storage(self, job_id: str, record: AttemptRecord | None) -> FileCheckpointStorage:
        requested = record.checkpoint_directory if record is not None else None
        return FileCheckpointStorage(
            requested or self._services.settings.checkpoint_directory,
            job_id,
            savepoint_roots=self._services.settings.savepoint_roots,
            intents=SavepointIntents(self._services.intents_directory, job_id),
        )

    def _record(self, job_id: str) -> AttemptRecord | None:
        try:
            return JobDirectory(self._services.jobs_directory, job_id).read_record()
        except AttemptRecordUnreadable as error:
            logger.warning("job %s: %s", job_id, error)
            return None

    def _is_driver_gone(self, record: AttemptRecord | None, began_s: float) -> bool:
        """Return whether the driver is gone.

        An unreachable driver ends when its lease, counted from this leader's start, is over.
        """
        if record is not None and record.ended:
            return True
        if record is not None and record.pid is not None and record.host == self._services.host_name:
            return not is_group_alive(record.pid)
        return self._services.clock.monotonic() - began_s > self._services.settings.heartbeat_timeout_s
