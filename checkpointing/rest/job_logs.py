"""Reads the logs of a job's drivers, attempt by attempt, as they grow."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from checkpointing.rest.client import NO_LEADER, JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import ENDED, JobNotFound

Json = Mapping[str, Any]
_POLL_S = 1.0
_ENOUGH_BYTES = 4 << 20  # for the last lines; the job manager returns this much at a time


@dataclass(frozen=True)
class JobLogs:
    """The logs that the job manager keeps of one job. Methods raise what JobManagerClient does."""

    client: JobManagerClient
    job_id: str

    def log(self, attempt: int | None) -> Json:
        """Return the log of an attempt, or of the newest one. Raise JobNotFound if there is none."""
        logs = self._by_attempt()
        if not logs:
            raise JobNotFound(f"Job {self.job_id} has no log yet.")
        found = logs.get(max(logs) if attempt is None else attempt)
        if found is None:
            kept = ", ".join(map(str, sorted(logs)))
            raise JobNotFound(f"--attempt: {attempt} is not allowed; job {self.job_id} has logs of attempts {kept}")
        return found

    def read(self, log: Json, start: int | None = None) -> bytes:
        return self.client.get_content(f"/jobs/{self.job_id}/logs/{urllib.parse.quote(log['name'])}", start)

    def follow(self, wait: Callable[[float], None], last: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield (attempt, line) of the newest attempt and of those that follow it, until the job has ended.

        If `last` is given, yield only that many of the existing lines. Wait for a job manager that does not answer.
        """
        attempt, start = 0, 0
        while True:
            try:
                has_ended = str(self.client.get(f"/jobs/{self.job_id}/status")["status"]) in ENDED
                logs = self._by_attempt()
                if not attempt and logs:
                    attempt = max(logs)
                    start = 0 if last is None else max(0, logs[attempt]["size"] - _ENOUGH_BYTES)
                newer = [number for number in logs if number > attempt]
                log = logs.get(attempt)
                if log is not None and log["size"] < start:
                    start = 0  # the beginning of the log was cut off
                added = b"" if log is None else self.read(log, start)
                lines, length = _whole_lines(added, to_the_end=has_ended or bool(newer))
            except (JobManagerUnreachable, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.status != NO_LEADER:
                    raise
                wait(_POLL_S)
                continue
            yield from ((attempt, line) for line in lines[-(last or 0) :])
            start, last = start + length, None if length else last
            if not length and newer:
                attempt, start = min(newer), 0
            elif not length and has_ended:
                return
            elif not length:
                wait(_POLL_S)

    def _by_attempt(self) -> dict[int, Json]:
        """Return the logs without the parts that were cut off."""
        listed = self.client.get(f"/jobs/{self.job_id}/logs")["logs"]
        return {int(log["attempt"]): log for log in listed if log["name"].endswith(".log")}


def _whole_lines(content: bytes, *, to_the_end: bool) -> tuple[list[str], int]:
    """Return the lines and how many bytes they take. An unfinished last line is left for the next call."""
    whole = content if to_the_end else content[: content.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(), len(whole)
