"""Restarts a job from the command line: chooses the state, ends the running job, and starts the new one.

Everything that can be checked is checked before the running job is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from checkpointing.rest.client import JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import ENDED, JobOperations, OperationFailed, time_text
from checkpointing.rest.rows_written_again import warning_of, writing_again

Json = Mapping[str, Any]
_NOT_ADDRESSABLE = "<"  # the start of Flink's text for a checkpoint without a location


@dataclass(frozen=True)
class JobRestart:
    """A restart of one job.

    `savepoint` is the location to restore. None: a savepoint of the running job, or the ended job's newest state. `say`
    gets one sentence for each step, `warn` gets warnings before it. `only_ended`: a job that has not ended is refused
    instead of stopped.
    """

    operations: JobOperations
    job: Json
    savepoint: str | None
    allow_non_restored_state: bool
    say: Callable[[str], object]
    warn: Callable[[str], object]
    only_ended: bool = False

    def run(self) -> tuple[str, str | None]:
        """Return the new job's id and the location that it starts from, or None for a job that has no state yet.

        Raises what the methods of JobOperations raise. The text of OperationFailed says if the job was stopped before.
        """
        if self.only_ended and self.job["state"] not in ENDED:
            raise OperationFailed(
                f"Job {self.job_id} is {self.job['state']}. A job can run again only after it has ended. Nothing was "
                "started."
            )
        launch = self.operations.client.get(f"/jobs/{self.job_id}/launch")
        self._check_program(launch)
        if self.savepoint is not None:
            self._check_usable(self.savepoint, launch)
            self._warn_of_rows_written_again()
        if self.job["state"] in ENDED:
            location = self.savepoint or self._end_state(launch)
            return self._start(launch, location), location
        saved: str | None
        if self.savepoint is None:
            location = saved = self._stop()
        else:
            location, saved = self.savepoint, self._cancel()
        try:
            return self._start(launch, location), location
        except (RequestRefused, JobManagerUnreachable) as error:
            hint = f" Its savepoint is {saved}." if saved else ""
            raise OperationFailed(
                f"Job {self.job_id} was stopped, but could not be started again: {error}.{hint}"
            ) from error

    @property
    def job_id(self) -> str:
        return str(self.job["jid"])

    def _check_program(self, launch: Json) -> None:
        files = self.operations.client.get("/jars")["files"]
        if launch["jarId"] not in [file["id"] for file in files]:
            raise OperationFailed(
                f"The job manager no longer stores the program of job {self.job_id} ({launch['jarId']}). Submit the "
                "program again: manage.py submit PROGRAM --from-savepoint LOCATION"
            )

    def _check_usable(self, location: str, launch: Json) -> None:
        verdict = self._validated(location, launch)
        if not verdict["valid"]:
            what = "--from-savepoint" if self.savepoint is not None else "The snapshot that the job ended with"
            raise OperationFailed(f"{what}: {verdict['reason']}")
        if self.job["state"] not in ENDED and self._is_deleted_on_cancel(location):
            raise OperationFailed(
                f"--from-savepoint: {location} is a checkpoint of this job. The job manager deletes it when the job is "
                "canceled. Omit the option, or set execution.checkpointing.externalized-checkpoint-retention to "
                "RETAIN_ON_CANCELLATION."
            )

    def _is_deleted_on_cancel(self, location: str) -> bool:
        client = self.operations.client
        if not client.get(f"/jobs/{self.job_id}/checkpoints/config")["externalization"]["delete_on_cancellation"]:
            return False
        own = {_path(checkpoint) for checkpoint in self._completed() if not checkpoint["is_savepoint"]}
        return location.removeprefix("file:") in {path.removeprefix("file:") for path in own}

    def _validated(self, location: str, launch: Json) -> Json:
        entry_class = None if self.allow_non_restored_state else launch["entryClass"]
        body = {"savepointPath": location, "entryClass": entry_class}
        return self.operations.client.post("/savepoints/validate", body)

    def _warn_of_rows_written_again(self) -> None:
        """Warn if queries can write rows a second time, because the state may be older than the job's output."""
        queries = self.operations.client.get(f"/jobs/{self.job_id}")["queries"]
        if again := writing_again(queries):
            self.warn(warning_of(again))

    def _stop(self) -> str:
        self.say(f"Stopping job {self.job_id} with a savepoint.")
        return self.operations.savepoint(self.job_id, self.operations.trigger_stop(self.job_id, None))

    def _cancel(self) -> str | None:
        """Cancel the job. Return the location of the savepoint taken before, or None if the job does not run."""
        operations, job_id = self.operations, self.job_id
        if self.job["state"] != "RUNNING":
            self.say(f"Canceling job {job_id}.")
            operations.cancel(job_id)
            return None
        self.say(f"Canceling job {job_id} with a savepoint.")
        location = operations.savepoint(job_id, operations.trigger_savepoint(job_id, None, cancel_job=True))
        self.say(f"Savepoint: {location}")
        operations.wait_canceled(job_id)
        return location

    def _end_state(self, launch: Json) -> str | None:
        """Return the end state of a job that ended by itself. For other jobs return the newest usable state."""
        end = self.operations.client.get(f"/jobs/{self.job_id}").get("ended-by-itself")
        if not end or not end["is-saved"]:
            return self._newest_state(launch)
        location: str | None = end["state-path"]
        if location is not None:
            self._check_usable(location, launch)
        source = f"from {location}" if location else "without state, because no run of the job has processed a batch"
        self.say(f"Starting {self.job['name']} again {source}.")
        return location

    def _newest_state(self, launch: Json) -> str:
        self._warn_of_rows_written_again()
        for checkpoint in sorted(self._completed(), key=lambda each: -int(each["trigger_timestamp"])):
            verdict = self._validated(_path(checkpoint), launch)
            if verdict["valid"]:
                self.say(
                    f"Newest usable state: {_path(checkpoint)}, taken {time_text(checkpoint['trigger_timestamp'])}."
                )
                return _path(checkpoint)
            self.say(f"Not usable: {verdict['reason']}")
        started = f" It was started from {launch['savepointPath']}." if launch["savepointPath"] else ""
        raise OperationFailed(
            f"Job {self.job_id} has no savepoint and no retained checkpoint to restart from.{started} Give a location "
            "with --from-savepoint, or submit the program without state."
        )

    def _completed(self) -> Iterator[Json]:
        """Yield the checkpoints and savepoints that the job manager knows and has not deleted."""
        statistics = self.operations.client.get(f"/jobs/{self.job_id}/checkpoints")
        latest = statistics["latest"]
        found = {
            each["id"]: each for each in (*statistics["history"], latest["completed"], latest["savepoint"]) if each
        }
        for checkpoint in found.values():
            is_there = checkpoint["status"] == "COMPLETED" and not checkpoint["discarded"]
            if is_there and not _path(checkpoint).startswith(_NOT_ADDRESSABLE):
                yield checkpoint

    def _start(self, launch: Json, location: str | None) -> str:
        body = {name: launch[name] for name in ("entryClass", "programArgsList", "parallelism", "flinkConfiguration")}
        lenient = self.allow_non_restored_state or launch["allowNonRestoredState"]
        body |= {"jobName": self.job["name"], "savepointPath": location, "allowNonRestoredState": lenient}
        job_id = self.operations.client.run(launch["jarId"], body)
        self.say(f"Submitted: job {job_id}")
        return job_id


def _path(checkpoint: Json) -> str:
    return str(checkpoint["external_path"])
