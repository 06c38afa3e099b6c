"""The drivers' logs of one job, by attempt: list, read and search them. All methods block.

The log of attempt 3 is `driver-3.log`. `driver-3.log.1` holds the last megabyte that was cut from that log
(launching/log_limit.py).
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from checkpointing.jobs.attempts import CUT_LOG_NAME, LOG_NAME, AttemptRecordUnreadable, JobDirectory
from checkpointing.jobs.launching.deployment import ClusterManager, deployment_of
from checkpointing.jobs.launching.processes import SPEC_NAME
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import MalformedMessage

MOST_MATCHES = 200
_LONGEST_LINE = 64 * 1024
_NAME = re.compile(r"driver-(?P<attempt>\d{1,9})\.log(?P<cut>\.1)?")
# The Python side writes a space, the JVM a T. Both write the local time of the driver's machine.
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3})")


class NoSuchLog(Exception):
    """The job has no log of this name, or the log was removed."""


@dataclass(frozen=True)
class Elsewhere:
    """Where the rest of a log is. Programs compare the `code`, because the `text` may be reworded."""

    code: str
    text: str


@dataclass(frozen=True)
class DriverLog:
    """One file. `elsewhere` is None when this is all of the log."""

    name: str
    attempt: int
    size: int
    modified_ms: int
    started_ms: int
    is_first_failure: bool
    elsewhere: Elsewhere | None


@dataclass(frozen=True)
class Match:
    """A line that contains the search text. `offset` is the position of its first byte."""

    offset: int
    line: str


class DriverLogs:
    def __init__(self, jobs_directory: Path, job_id: str) -> None:
        self._directory = JobDirectory(jobs_directory, job_id)

    def all(self) -> list[DriverLog]:
        """Return the logs, the newest attempt first. The log of an attempt precedes the part that was cut from it."""
        first_failure = self._first_failure()
        found: list[DriverLog] = []
        for attempt, directory in self._directory.attempts():
            for name in (LOG_NAME, CUT_LOG_NAME):
                try:
                    facts = (directory / name).lstat()
                except FileNotFoundError:
                    continue
                modified_ms = facts.st_mtime_ns // 1_000_000
                started_ms, elsewhere = _start(directory)
                log = DriverLog(
                    name=f"driver-{attempt}.log{name.removeprefix(LOG_NAME)}",
                    attempt=attempt,
                    size=facts.st_size,
                    modified_ms=modified_ms,
                    started_ms=modified_ms if started_ms is None else started_ms,
                    is_first_failure=attempt == first_failure,
                    elsewhere=elsewhere,
                )
                found.append(log)
        return found

    def _first_failure(self) -> int | None:
        try:
            record = self._directory.read_record()
        except AttemptRecordUnreadable:
            return None
        return None if record is None else record.first_failure

    def size(self, name: str) -> int:
        with self._opened(name) as log:
            return os.fstat(log.fileno()).st_size

    def read(self, name: str, start: int, length: int) -> bytes:
        with self._opened(name) as log:
            log.seek(start)
            return log.read(length)

    def search(self, name: str, text: str) -> list[Match]:
        """Return the last lines that contain `text`, ignoring case: at most MOST_MATCHES + 1 of them."""
        wanted, found = text.lower().encode(), list[Match]()
        for offset, line in self._lines(name):
            if wanted in line.lower() or wanted in line.decode(errors="replace").lower().encode():
                found.append(Match(offset, line.decode(errors="replace").rstrip("\r\n")))
                if len(found) > MOST_MATCHES + 1:
                    del found[0]
        return found

    def position(self, name: str, time_ms: int) -> int:
        """Return the position of the first line written at `time_ms` or later, or the log's size if there is none."""
        end = 0
        for offset, line in self._lines(name):
            written_ms = _time_ms(line)
            if written_ms is not None and written_ms >= time_ms:
                return offset
            end = offset + len(line)
        return end

    def _lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        with self._opened(name) as log:
            offset = 0
            while line := log.readline(_LONGEST_LINE):
                yield offset, line
                offset += len(line)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a log as a regular file. Do not follow a link that a program may have put in its place."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise NoSuchLog(name)
        path = self._directory.attempt_directory(int(match["attempt"])) / f"{LOG_NAME}{match['cut'] or ''}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise NoSuchLog(name) from error
        with os.fdopen(descriptor, "rb") as log:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NoSuchLog(name)
            yield log


def _time_ms(line: bytes) -> int | None:
    match = _TIME.match(line)
    if match is None:
        return None
    day, time, milliseconds = (part.decode() for part in match.groups())
    try:
        return round(datetime.fromisoformat(f"{day}T{time}.{milliseconds}").astimezone(UTC).timestamp() * 1000)
    except ValueError:
        return None


def _start(directory: Path) -> tuple[int | None, Elsewhere | None]:
    """Return when the attempt was launched, and where Spark keeps the rest of its log."""
    path = directory / SPEC_NAME
    try:
        started_ms = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return None, None
    try:
        return started_ms, _elsewhere(DriverSpec.from_json(json.loads(path.read_text())))
    except (OSError, ValueError, TypeError, MalformedMessage, InvalidConfiguration):
        return started_ms, None


def _elsewhere(spec: DriverSpec) -> Elsewhere | None:
    deployment = deployment_of(spec.configuration, parallelism=spec.parallelism)
    if not deployment.has_executors:
        return None
    code, who = deployment.manager.name.lower(), "executors"
    if deployment.driver_is_in_the_cluster:
        code, who = f"{code}-driver", "driver and the executors"
    return Elsewhere(code, f"The cluster keeps the logs of the {who}: {_WHERE[deployment.manager]}")


_WHERE = {
    ClusterManager.STANDALONE: "open the application in the web UI of the Spark master, "
    "or see the work/ directory of each worker.",
    ClusterManager.YARN: "run yarn logs -applicationId with the application id from the driver's log.",
    ClusterManager.KUBERNETES: "run kubectl logs with the name of the pod.",
}
