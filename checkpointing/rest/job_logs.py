"""Read the logs of a job's drivers, attempt by attempt, as they grow."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import ENDED, NO_LEADER, JobNotFound

Json = Mapping[str, Any]
_POLL_S = 1.0
_ENOUGH_BYTES = 4 << 20  # for the last lines; the job manager answers with so many at a time


@dataclass(frozen=True)
class JobLogs:
    """The logs that the job manager keeps of one job. Methods raise what JobManagerClient does."""

    client: JobManagerClient
    job_id: str

    def log(self, attempt: int | None) -> Json:
        """Return the log of an attempt, or of the newest one; JobNotFound when there is none."""
        listed = self.client.get(f"/jobs/{self.job_id}/logs")["logs"]
        logs = {log["attempt"]: log for log in listed if log["name"].endswith(".log")}
        if not logs:
            raise JobNotFound(f"Job {self.job_id} has no log yet.")
        found: Json | None = logs.get(max(logs) if attempt is None else attempt)
        if found is None:
            kept = ", ".join(map(str, sorted(logs)))
            raise JobNotFound(f"--attempt: {attempt} is not allowed; job {self.job_id} has logs of attempts {kept}")
        return found

    def read(self, log: Json, start: int | None = None) -> bytes:
        return self.client.get_content(f"/jobs/{self.job_id}/logs/{urllib.parse.quote(log['name'])}", start)

    def follow(self, wait: Callable[[float], None], last: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield (attempt, line) of the newest attempt and of those that follow it, until the job has ended.

        Of what is there at first only the `last` lines, if that is given. A job manager that goes away is waited for.
        """
        attempt, start = 0, 0
        while True:
            try:
                has_ended = str(self.client.get(f"/jobs/{self.job_id}/status")["status"]) in ENDED
                log = self.log(None)
                if log["attempt"] != attempt or log["size"] < start:  # another one, or its beginning was cut off
                    attempt, start = log["attempt"], 0 if last is None else max(0, log["size"] - _ENOUGH_BYTES)
                lines, length = _whole_lines(self.read(log, start), to_the_end=has_ended)
            except JobManagerUnreachable:
                has_ended, lines, length = False, [], 0
            except RequestRefused as error:
                if error.status != NO_LEADER:
                    raise
                has_ended, lines, length = False, [], 0
            yield from ((attempt, line) for line in lines[-(last or 0) :])
            start += length
            last = None if length else last
            if has_ended and not length:
                return
            if not length:
                wait(_POLL_S)


def _whole_lines(content: bytes, *, to_the_end: bool) -> tuple[list[str], int]:
    """Return the lines and how many bytes they take. A last one that is still being written waits for its end."""
    whole = content if to_the_end else content[: content.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(), len(whole)
