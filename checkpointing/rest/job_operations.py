"""The operations of `manage.py job` on a job over the REST API: find it, take a savepoint, stop, cancel, restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from checkpointing.ids import new_id
from checkpointing.rest.client import NO_LEADER, JobManagerClient, JobManagerUnreachable, RequestRefused

Json = Mapping[str, Any]

SCHEDULED = frozenset({"CREATED", "INITIALIZING"})
ENDED = frozenset({"FINISHED", "CANCELED", "FAILED"})
_POLL_S = 0.5


class JobNotFound(LookupError):
    """No job, or more than one, matches. The text lists the candidates."""


class OperationFailed(Exception):
    """The job manager tried and reports why the operation failed."""


class StillInProgress(Exception):
    """The timeout has passed. The operation continues in the job manager."""


def find_job(jobs: Sequence[Json], text: str) -> Json:
    """Return the job that `text` names: by its id, by its name, or by the beginning of its id.

    A name means the job that has not ended, else the one that started last. Raises JobNotFound.
    """
    by_id = [job for job in jobs if job["jid"] == text.lower()]
    by_name = [job for job in jobs if job["name"] == text]
    if not by_id and by_name:
        live = [job for job in by_name if job["state"] not in ENDED]
        by_name = live or [max(by_name, key=lambda job: int(job["start-time"]))]
    found = by_id or by_name or [job for job in jobs if text and job["jid"].startswith(text.lower())]
    if not found:
        raise JobNotFound(
            f"JOB: {text!r} is neither a job's id, its beginning, nor a name. `job list -a` lists all jobs."
        )
    if len(found) > 1:
        names = ", ".join(f"{job['jid']} ({job['name']}, {job['state']})" for job in found)
        raise JobNotFound(f"JOB: {text!r} is not unique; write the id of one of: {names}")
    return found[0]


@dataclass(frozen=True)
class JobOperations:
    """Operations on jobs. `monotonic` and `wait` are those of the clock; no call waits longer than `timeout_s`.

    Every method raises JobManagerUnreachable or RequestRefused, and those that wait also StillInProgress. If the job
    manager does not answer while a method waits, the method keeps waiting.
    """

    client: JobManagerClient
    monotonic: Callable[[], float]
    wait: Callable[[float], None]
    timeout_s: float

    def jobs(self) -> list[Json]:
        """Return `/jobs/overview`, in the order in which the jobs started."""
        return sorted(self.client.get("/jobs/overview")["jobs"], key=lambda job: int(job["start-time"]))

    def trigger_savepoint(self, job_id: str, directory: str | None, *, cancel_job: bool = False) -> str:
        """Trigger a savepoint and return the trigger ID."""
        body = {"target-directory": directory, "cancel-job": cancel_job, "triggerId": new_id()}
        return str(self.client.post(f"/jobs/{job_id}/savepoints", body)["request-id"])

    def trigger_stop(self, job_id: str, directory: str | None, *, drain: bool = False) -> str:
        """Trigger a stop and return the trigger ID."""
        body = {"targetDirectory": directory, "drain": drain, "triggerId": new_id()}
        return str(self.client.post(f"/jobs/{job_id}/stop", body)["request-id"])

    def savepoint(self, job_id: str, trigger_id: str, in_progress: Callable[[], object] = lambda: None) -> str:
        """Wait for a savepoint or a stop, and return the savepoint's location. Raises OperationFailed.

        `in_progress` is called once, unless the operation has already ended at the first check, for example with a
        refusal.
        """
        is_said = False

        def check() -> str | None:
            nonlocal is_said
            answer = self.client.get(f"/jobs/{job_id}/savepoints/{trigger_id}")
            if answer["status"]["id"] != "COMPLETED":
                if not is_said:
                    in_progress()
                is_said = True
                return None
            operation = answer["operation"]
            if "failure-cause" in operation:
                raise OperationFailed(_message(operation["failure-cause"]))
            return str(operation["location"])

        return self._until(check, f"Operation {trigger_id} on job {job_id}")

    def cancel(self, job_id: str) -> None:
        """Cancel the job and wait until it is CANCELED. Raises OperationFailed when it ended in another way."""
        self.client.cancel(job_id)
        self.wait_canceled(job_id)

    def wait_canceled(self, job_id: str) -> None:
        """Wait until the job is CANCELED. Raise OperationFailed if the job ended in another way."""

        def ended() -> str | None:
            status = str(self.client.get(f"/jobs/{job_id}/status")["status"])
            return status if status in ENDED else None

        status = self._until(ended, f"The cancellation of job {job_id}")
        if status != "CANCELED":
            raise OperationFailed(f"Job {job_id} is {status}, not CANCELED.")

    def _until(self, check: Callable[[], str | None], what: str) -> str:
        deadline = self.monotonic() + self.timeout_s
        while True:
            try:
                result = check()
            except JobManagerUnreachable:
                result = None
            except RequestRefused as error:
                if error.status != NO_LEADER:
                    raise
                result = None
            if result is not None:
                return result
            if self.monotonic() > deadline:
                raise StillInProgress(f"{what} is still in progress after {self.timeout_s:g} s and continues.")
            self.wait(_POLL_S)


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _message(cause: Json) -> str:
    """Return the sentence of a failure in Flink's form, without its class name."""
    first = str(cause["stack-trace"]).partition("\n")[0]
    return first.removeprefix(f"{cause['class']}: ")
