"""All jobs of this job manager: it accepts new ones, recovers them as the new leader, and leaves them with its term.

Everything runs on the event loop. Methods that need the leader raise NotLeading while this job manager does not lead,
or while it still recovers the jobs of the last leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.errors import LeadershipLost
from checkpointing.ha.job_results import JobResult
from checkpointing.jobs.archive import Answers, ArchivedJob, JobArchive
from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.continued_queries import check_not_continued
from checkpointing.jobs.driver_conversation import NotReady
from checkpointing.jobs.driver_link import DriverChannel
from checkpointing.jobs.ended_jobs import STORE_ERRORS, EndedJobs
from checkpointing.jobs.job_master import END_GRACE_S, JobMaster
from checkpointing.jobs.job_record import first_line
from checkpointing.jobs.operations import Operations, Outcome
from checkpointing.jobs.past_jobs import PastJobs
from checkpointing.jobs.programs import Program
from checkpointing.jobs.retries import Retries
from checkpointing.jobs.services import JobServices
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import DriverMessage, Refused, Register
from checkpointing.model.status import JobStatus
from checkpointing.storage.errors import StorageSilent

logger = logging.getLogger(__name__)


class NotLeading(Exception):
    """Another job manager leads, or none leads yet."""


class NotRecovered(NotLeading):
    """The job is stored, but could not be recovered yet. The job manager tries again."""


class JobNotFound(LookupError):
    def __init__(self, job_id: str) -> None:
        super().__init__(f"Could not find Flink job ({job_id})")
        self.job_id = job_id


class JobExists(Exception):
    """The job id is taken."""


class SubmissionFailed(Exception):
    """The job could not be stored; nothing was started."""


class Dispatcher:
    """The jobs of this job manager.

    `describe(job)` returns the REST answers of an ended job, by path below `/jobs/:jobid`.
    """

    def __init__(self, services: JobServices, describe: Callable[[JobMaster], Answers]) -> None:
        self.services = services
        self._describe = describe
        self.session_id: str | None = None
        self.operations = Operations(services.clock)
        self._ready = False
        self._jobs: dict[str, JobMaster] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, JobMaster] = {}
        self._archive = JobArchive(services)
        self._retries = Retries()
        self._ended_jobs = EndedJobs(services, self._retries)
        self._past_jobs = PastJobs(services, self._retries, lambda job_id: job_id in self._jobs)
        self._submitting: dict[str, JobGraph] = {}
        self._stored: Sequence[str] = ()

    @property
    def leading(self) -> bool:
        return self._ready and self.session_id is not None and self.services.leads(self.session_id)

    # --- leadership -------------------------------------------------------------------------------------------------

    async def take_leadership(self, session_id: str) -> None:
        """Recover every stored job.

        Retry a job that cannot be recovered while the term lasts; the others run meanwhile.

        Raise if the stored jobs cannot be listed. A leader without its jobs would report running jobs as unknown, so
        this job manager does not lead then. All other failures are retried in the background and do not delay leading
        (decision 123). The election reports a lost term only afterwards, so each step checks the term and leaves the
        rest to the next leader.
        """
        self.session_id = session_id
        self.services.launch_queue.hold()
        try:
            await self._recover_all(session_id)
        finally:
            self.services.launch_queue.release()

    async def _recover_all(self, session_id: str) -> None:
        await self._retries.now_or_later("the clean-up of ended jobs", self._ended_jobs.finish_clean_up)
        await self._retries.now_or_later("reading the archive of ended jobs", self._archive.load)
        stored = await self.services.io.read("the stored jobs", self.services.high_availability.job_graphs.job_ids)
        self._stored = stored
        for job_id in stored:
            if not self._is_term(session_id):
                logger.warning("leadership was lost during the recovery, which ends here: the next leader's turn")
                return
            await self._retries.now_or_later(_recovery_of(job_id), partial(self._recovered, job_id, session_id))
        await self._retries.now_or_later(
            "the search for jobs of the past", partial(self._past_jobs.sweep, session_id, stored)
        )
        self._ready = self._is_term(session_id)

    def _is_term(self, session_id: str) -> bool:
        return self.session_id == session_id and self.services.leads(session_id)

    async def give_up_leadership(self, *, end_drivers: bool = False) -> None:
        """Suspend all jobs. The stores keep everything, and the next leader recovers the jobs."""
        self._ready = False
        self.session_id = None
        self.operations.cancel_all()
        for job in self._jobs.values():
            job.requests.suspend(end_driver=end_drivers)
        await self._until_ended(end_drivers=end_drivers)
        await self._retries.cancel_all()
        self.services.launch_queue.clear()
        self._past_jobs.close()
        with contextlib.suppress(StorageSilent):
            await self.services.io.read("the spare drivers", self.services.launcher.end_spares, silence_s=END_GRACE_S)

    async def _until_ended(self, *, end_drivers: bool) -> None:
        """Wait a limited time until the jobs have ended, because the state directory may not answer.

        A job that is cut short looks to the next leader as if this job manager had died.
        """
        runs = list(self._runs.values())
        if not runs:
            return
        limit_s = 2 * END_GRACE_S
        if end_drivers:
            limit_s += self.services.settings.cancel_timeout_s + 3 * END_GRACE_S
        _, left = await asyncio.wait(runs, timeout=limit_s)
        for run in left:
            logger.error("%s did not end within %g s and is abandoned", run.get_name(), limit_s)
            run.cancel()
        if left:
            await asyncio.wait(left, timeout=END_GRACE_S)

    async def _recovered(self, job_id: str, session_id: str) -> bool:
        """Recover the job.

        Raise or return False if the recovery must be retried: storage is often unavailable after a failover.
        """
        if not self._is_term(session_id):
            return True
        try:
            await self._recover(job_id, session_id)
        except (*STORE_ERRORS, InvalidConfiguration) as error:
            logger.error("job %s cannot be recovered and is left as it is: %s", job_id, error)
            return False
        return True

    async def _recover(self, job_id: str, session_id: str) -> None:
        if await self._has_ended(job_id):
            return
        ha = self.services.high_availability
        graph = await self.services.io.read(f"the graph of job {job_id}", lambda: ha.job_graphs.recover(job_id))
        if graph is None:
            return
        # Check again: only after the graph was read is it certain that the storage could show a result.
        if await self._has_ended(job_id):
            await self._release(job_id)
        elif self._is_term(session_id) and job_id not in self._jobs:
            self.services.launch_queue.expect(graph)
            sealed = self.services.secret_keys.seal(graph)
            self._start(JobMaster(sealed, session_id, self.services, self._record_result, recovered=True))
            if sealed != graph:
                await self._store_sealed(sealed)

    async def _store_sealed(self, graph: JobGraph) -> None:
        """Store the graph again if its secrets were plain, or sealed with a former key."""
        try:
            store = self.services.high_availability.job_graphs.put
            await self.services.io.read(f"the graph of job {graph.job_id}", lambda: store(graph))
        except (*STORE_ERRORS, PossibleInconsistentState) as error:
            logger.warning("job %s: its secrets stay stored as they were: %s", graph.job_id, error)

    async def _has_ended(self, job_id: str) -> bool:
        results = self.services.high_availability.job_results
        has_ended = await self.services.io.read(f"the result of job {job_id}", lambda: results.has_result(job_id))
        if has_ended:
            logger.warning("job %s has ended and is not recovered; its clean-up is not finished", job_id)
        return has_ended

    # --- jobs -------------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> tuple[JobMaster, ...]:
        """Return the running jobs and the last ones that ended."""
        return (*self._jobs.values(), *reversed(self._ended.values()))

    def job(self, job_id: str) -> JobMaster:
        """Return the job. Raise NotLeading, NotRecovered or JobNotFound."""
        self.require_leading()
        self._require_recovered(job_id)
        job = self._jobs.get(job_id) or self._ended.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    def _require_recovered(self, job_id: str) -> None:
        if self._retries.is_waiting(_recovery_of(job_id)):
            raise NotRecovered(f"Job {job_id} is stored, but could not be recovered yet; the job manager tries again.")

    @property
    def archived_jobs(self) -> Sequence[ArchivedJob]:
        """Return the jobs that ended under an earlier job manager, the newest first. Raise NotLeading."""
        self.require_leading()
        return self._older_jobs

    @property
    def _older_jobs(self) -> Sequence[ArchivedJob]:
        return [job for job in self._archive.jobs if job.job_id not in self._jobs and job.job_id not in self._ended]

    def archived(self, job_id: str) -> ArchivedJob | None:
        """Return the archived job, or None if there is none. Raise NotLeading."""
        return next((job for job in self.archived_jobs if job.job_id == job_id), None)

    def require_leading(self) -> str:
        """Return the session ID of this leader. Raise NotLeading if this job manager does not lead."""
        if not self.leading or self.session_id is None:
            raise NotLeading
        return self.session_id

    def require_all_recovered(self) -> None:
        """Raise NotLeading, or NotRecovered if a stored job is not recovered yet."""
        self.require_leading()
        for job_id in self._stored:
            self._require_recovered(job_id)

    def check_import(self, imports: Mapping[str, str]) -> None:
        """Check that no job continues one of the queries in `imports` (checkpoint locations by Spark's query ID).

        Raises:
            AlreadyContinued: a job that has not ended continues one.
            NotLeading, NotRecovered: not every job is known yet.
        """
        self.require_all_recovered()
        jobs = [(job.graph, job.status) for job in self._jobs.values()]
        check_not_continued(imports, [*jobs, *((graph, JobStatus.INITIALIZING) for graph in self._submitting.values())])

    async def submit(self, graph: JobGraph, program: Program, imports: Mapping[str, str] | None = None) -> None:
        """Store the job, then start it. `check_import` explains `imports`, which come from the job's savepoint.

        Raise NotLeading, JobExists, InvalidConfiguration, AlreadyContinued or SubmissionFailed.
        """
        session_id = self.require_leading()
        self._require_recovered(graph.job_id)
        if graph.job_id in self._jobs or graph.job_id in self._submitting:
            raise JobExists(f"Job {graph.job_id} already exists and has not ended.")
        self.services.launcher.check(graph)
        self.services.launch_queue.check(graph)
        graph = self.services.secret_keys.seal_new(graph)
        if imports:
            self.check_import(imports)
        self._submitting[graph.job_id] = graph
        try:
            job = JobMaster(graph, session_id, self.services, self._record_result, recovered=False)
            await self._store(graph, program, session_id)
            if not self._is_term(session_id):
                raise NotLeading
            self._start(job)
        finally:
            self._submitting.pop(graph.job_id)

    async def _store(self, graph: JobGraph, program: Program, session_id: str) -> None:
        services = self.services

        def store() -> None:
            services.high_availability.leader_election.confirm_term(session_id)
            if services.high_availability.job_results.has_result(graph.job_id):
                raise JobExists(f"Job {graph.job_id} has already been executed and has ended; use another id.")
            JobDirectory(services.jobs_directory, graph.job_id).store_program(program.path, program.name)
            services.high_availability.job_graphs.put(graph)

        try:
            await services.io.run(store)
        except LeadershipLost as error:
            raise NotLeading from error
        except (*STORE_ERRORS, PossibleInconsistentState) as error:
            raise SubmissionFailed(f"The job could not be stored: {error}") from error

    def _start(self, job: JobMaster) -> None:
        job_id = job.graph.job_id
        self._ended.pop(job_id, None)
        self._jobs[job_id] = job
        self._runs[job_id] = asyncio.create_task(self._run(job), name=f"job {job_id}")

    async def _run(self, job: JobMaster) -> None:
        job_id = job.graph.job_id
        status = await job.run()
        if status.globally_terminal and job.left_nothing:
            await self._ended_jobs.clean_up(job_id, keep_files=job.keeps_files)
        else:
            await self._release(job_id)
            if status.globally_terminal and not job.keeps_state:
                self._ended_jobs.clean_up_later(job_id)
        self._jobs.pop(job_id, None)
        self._runs.pop(job_id, None)
        if status.globally_terminal:  # another job manager has taken over a suspended job
            self._ended[job_id] = job
            await self._archive_of(job)
            await self._forget_oldest()

    async def _record_result(self, job: JobMaster) -> bool:
        """Archive the job, then store its result: a job with a result is not recovered, so it must have an archive."""
        record = job.record
        await self._archive_of(job)
        return await self._ended_jobs.record(
            JobResult(
                job_id=record.graph.job_id,
                job_name=record.graph.name,
                status=record.status,
                started_ms=record.state.started_ms,
                ended_ms=record.state.last_modified_ms,
                failure_cause=first_line(record.failure.message) if record.failure else None,
                is_saved=record.is_saved,
                keep_state=job.keeps_state,
                keep_files=job.keeps_files,
            ),
            job.session_id,
        )

    async def _archive_of(self, job: JobMaster) -> None:
        if not self.services.leads(job.session_id):
            return
        try:
            answers = self._describe(job)
        except Exception:
            # A bug in the description must not keep the job from ending.
            logger.exception("job %s: it will not be shown after a restart of the job manager", job.graph.job_id)
        else:
            await self._archive.write(job.graph.job_id, answers)

    async def _release(self, job_id: str) -> None:
        """Unlock the job's graph, so that the next leader can run the job or clean it up."""
        try:
            await self.services.io.run(lambda: self.services.high_availability.job_graphs.release(job_id))
        except STORE_ERRORS as error:
            logger.error("job %s: its graph stays locked until the session ends: %s", job_id, error)

    async def _forget_oldest(self) -> None:
        while len(self._ended) + len(self._older_jobs) > self.services.settings.completed_jobs:
            job_id = self._older_jobs[-1].job_id if self._older_jobs else next(iter(self._ended))
            self._archive.drop(job_id)
            self._ended.pop(job_id, None)
            await self._ended_jobs.forget(job_id)

    # --- asynchronous operations ------------------------------------------------------------------------------------

    def trigger(
        self,
        job_id: str,
        trigger_id: str,
        operation: str,
        begin: Callable[[JobMaster], Coroutine[Any, Any, dict[str, Any]]],
    ) -> None:
        """Begin the operation once for each (job, trigger ID).

        An unknown job shows in the operation's result, as in Flink.
        """
        self.require_leading()

        async def run() -> dict[str, Any]:
            return await begin(self.job(job_id))

        self.operations.start((operation, job_id, trigger_id), run)

    def outcome(self, job_id: str, trigger_id: str, operation: str) -> Outcome:
        """Return the operation's outcome. Raise UnknownOperation or NotLeading."""
        self.require_leading()
        return self.operations.outcome((operation, job_id, trigger_id))

    # --- drivers ----------------------------------------------------------------------------------------------------

    def receive(self, channel: DriverChannel, message: DriverMessage) -> None:
        """Pass on a driver's message.

        NotLeading: the driver must look for the leader. NotReady: it must try again later.

        A job that is being suspended still receives its driver's messages while its term lasts, because it may wait for
        the last one.
        """
        job = self._jobs.get(message.job_id)
        if job is None or isinstance(message, Register):
            session_id = self.require_leading()
            if self._retries.is_waiting(_recovery_of(message.job_id)):
                raise NotReady(session_id)
        elif not self.services.leads(job.session_id):
            raise NotLeading
        if job is None:
            channel.send(Refused(f"job {message.job_id} does not run here"))
        elif isinstance(message, Register):
            job.driver.register(channel, message)
        else:
            job.driver.receive(channel, message)

    def disconnected(self, channel: DriverChannel) -> None:
        for job in self._jobs.values():
            job.driver.disconnected(channel)


def _recovery_of(job_id: str) -> str:
    return f"recovery of job {job_id}"
