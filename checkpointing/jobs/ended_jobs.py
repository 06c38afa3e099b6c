"""Clean-up after a job's end: its result is stored durably, then everything that is no longer needed is removed.

A job manager may die, and a step may fail, between any two steps, so each step may be repeated. The result is *dirty*
until the last step. If a step fails, this leader repeats all steps while its term lasts, and so does the next leader
(Flink's CheckpointResourcesCleanupRunner).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from checkpointing.ha.errors import CheckpointsUnreadable, HighAvailabilityError, JobGraphUnreadable
from checkpointing.ha.job_results import JobResult, JobResultExists
from checkpointing.jobs.attempts import AttemptRecordUnreadable, JobDirectory
from checkpointing.jobs.job_checkpoints import JobCheckpoints
from checkpointing.jobs.retries import Retries
from checkpointing.jobs.services import JobServices
from checkpointing.model.configuration import InvalidConfiguration

logger = logging.getLogger(__name__)

STORE_ERRORS = (OSError, HighAvailabilityError, ValueError, KeyError)
# A retry cannot fix these errors. Unreadable data stays in its place, and the job is over nevertheless.
_PERMANENT = (CheckpointsUnreadable, JobGraphUnreadable, InvalidConfiguration)


class EndedJobs:
    """Cleans up ended jobs. If a store fails, only `finish_clean_up` raises; other methods log the error."""

    def __init__(self, services: JobServices, retries: Retries) -> None:
        self._services = services
        self._retries = retries
        self._ha = services.high_availability

    async def record(self, result: JobResult, session_id: str) -> bool:
        """Store the job's result.

        Return False if that failed: then nothing may be removed, and the next leader runs the job.

        Store it only in the term of `session_id`. A former leader's result would end a job that another leader runs.
        """
        confirm_term = partial(self._ha.leader_election.confirm_term, session_id)

        def create() -> None:
            try:
                self._ha.job_results.create_dirty_result(result, confirm_term)
            except JobResultExists:
                logger.info("job %s: its end was recorded before", result.job_id)

        return await self._try(result.job_id, "its end could not be recorded", create)

    async def clean_up(self, job_id: str, *, keep_files: bool = False) -> None:
        """Remove the job's handles, counter, graph and working files, and mark its result as clean.

        Call it once the job's checkpoints are cleaned up. `keep_files`: see JobResult.
        """
        if not await self._removed(job_id, keep_files=keep_files):
            self.clean_up_later(job_id)

    def clean_up_later(self, job_id: str) -> None:
        """Repeat the whole clean-up of the job later, checkpoints included. Do nothing if no dirty result is stored."""

        async def again() -> bool:
            return all([await self._finished(result) for result in await self._dirty() if result.job_id == job_id])

        self._retries.again(_clean_up_of(job_id), again)

    async def _removed(self, job_id: str, *, keep_files: bool) -> bool:

        def remove() -> None:
            self._ha.clean_up(job_id)
            self._ha.job_graphs.remove(job_id)
            if not keep_files:
                JobDirectory(self._services.jobs_directory, job_id).keep_logs_only()
            self._ha.job_results.mark_as_clean(job_id)

        return await self._try(job_id, "its data could not all be cleaned up", remove)

    async def forget(self, job_id: str) -> None:
        """Remove the logs of a job that is no longer shown.

        Keep everything of a job without a stored result: it runs again.
        """

        def remove() -> None:
            if self._ha.job_results.has_result(job_id):
                JobDirectory(self._services.jobs_directory, job_id).remove()

        await self._try(job_id, "its directory could not be removed", remove)

    async def finish_clean_up(self) -> bool:
        """Finish the clean-up that earlier job managers left. A problem of one job does not delay the others.

        Return True. Raise OSError if the results cannot be listed now.
        """
        attempts = (
            self._retries.now_or_later(_clean_up_of(result.job_id), partial(self._finished, result))
            for result in await self._dirty()
        )
        await asyncio.gather(*attempts)  # jobs with hanging storage time out together, not one by one
        return True

    async def _dirty(self) -> Sequence[JobResult]:
        return await self._services.io.read("the results of ended jobs", self._ha.job_results.dirty_results)

    async def _finished(self, result: JobResult) -> bool:
        may_remove = result.keep_state or await self._discard_checkpoints(result)
        return may_remove and await self._removed(result.job_id, keep_files=result.keep_files)

    async def _discard_checkpoints(self, result: JobResult) -> bool:
        """Discard or retain each checkpoint as at the job's end.

        Return False if this must be retried before anything is removed.
        """
        try:
            io = self._services.io_of(result.job_id)
            graph = await io.read("its graph", lambda: self._ha.job_graphs.recover(result.job_id))
            if graph is None:
                return True
            checkpoints = JobCheckpoints.of_ended_job(graph, self._services)
            await checkpoints.recover_unless_silent(await self._first_checkpoint_id(result.job_id))
            return await checkpoints.shutdown(result.status, is_saved=result.is_saved) is None
        except _PERMANENT as error:
            logger.error("job %s: its checkpoints cannot be read and stay where they lie: %s", result.job_id, error)
            return True
        except STORE_ERRORS as error:
            logger.error("job %s: its checkpoints could not be cleaned up yet: %s", result.job_id, error)
            return False

    async def _first_checkpoint_id(self, job_id: str) -> int | None:
        """Return the first checkpoint ID of the job, or None if unknown.

        Without this ID, a complete checkpoint that is missing in an empty store stays: it may belong to an earlier
        run.
        """
        directory = JobDirectory(self._services.jobs_directory, job_id)
        try:
            record = await self._services.io_of(job_id).read("its record", directory.read_record)
        except AttemptRecordUnreadable as error:
            logger.warning("job %s: %s", job_id, error)
            return None
        return None if record is None else record.first_checkpoint_id

    async def _try(self, job_id: str, trouble: str, work: Callable[[], None]) -> bool:
        try:
            await self._services.io.run(work)
        except STORE_ERRORS as error:
            logger.error("job %s: %s: %s", job_id, trouble, error)
            return False
        return True


def _clean_up_of(job_id: str) -> str:
    return f"clean-up of job {job_id}"
