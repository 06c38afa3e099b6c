"""Savepoints of jobs that no longer run here, which a job manager that died was just taking.

A job that is stored is recovered, and then looks after its own. Without high availability none is stored: a job's
driver outlives its job manager by its lease at most, and only once it is gone nobody writes to its savepoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from checkpointing.jobs.attempts import AttemptRecordUnreadable, JobDirectory
from checkpointing.jobs.local_recovery import is_group_alive
from checkpointing.jobs.retries import Retries
from checkpointing.jobs.services import JobServices
from checkpointing.storage.savepoint_intents import SavepointIntents, jobs_with_intents

logger = logging.getLogger(__name__)


class PastSavepoints:
    """`runs_here(job id)`: the job does so, perhaps again, and looks after its own savepoints."""

    def __init__(self, services: JobServices, retries: Retries, runs_here: Callable[[str], bool]) -> None:
        self._services = services
        self._retries = retries
        self._runs_here = runs_here

    async def sweep(self, session_id: str, recovered: Collection[str]) -> None:
        """Begin to, for jobs other than the `recovered`: each as soon as its driver is certainly gone."""
        try:
            jobs = await self._services.io.run(lambda: jobs_with_intents(self._services.intents_directory))
        except OSError as error:
            logger.warning("savepoints that earlier job managers were taking cannot be looked up: %s", error)
            return
        began_s = self._services.clock.monotonic()
        for job_id in sorted(jobs - set(recovered)):
            self._retries.again(f"savepoints of past job {job_id}", partial(self._swept, job_id, session_id, began_s))

    async def _swept(self, job_id: str, session_id: str, began_s: float) -> bool:
        leads = partial(self._services.leads, session_id)
        if self._runs_here(job_id) or not leads():
            return True
        if not await self._services.io.run(lambda: self._is_driver_gone(job_id, began_s)):
            return False
        intents = SavepointIntents(self._services.intents_directory, job_id)
        try:
            removed = await self._services.io.run(lambda: intents.sweep(self._services.settings.savepoint_roots, leads))
        except OSError as error:
            logger.warning("job %s: savepoints that were never completed stay for now: %s", job_id, error)
            return False
        for directory in removed:
            logger.info("job %s: removed %s, a savepoint that was never completed", job_id, directory)
        return True

    def _is_driver_gone(self, job_id: str, began_s: float) -> bool:
        """One that nobody here can see has ended itself when its lease is over, counted from this leader's start."""
        try:
            record = JobDirectory(self._services.jobs_directory, job_id).read_record()
        except AttemptRecordUnreadable:
            record = None
        if record is not None and record.ended:
            return True
        if record is not None and record.pid is not None and record.host == self._services.host_name:
            return not is_group_alive(record.pid)
        return self._services.clock.monotonic() - began_s > self._services.settings.heartbeat_timeout_s
