"""A job's directory under the state directory, and the record of its newest attempt.

Attempt numbers ascend over the whole life of a job, across job managers: a number is stored durably before the driver
of its attempt starts (intent before act). Job managers of one cluster therefore share the state directory, as Flink's
share `high-availability.storageDir`. All methods block.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointing.durable_files import make_directory, sync, write_durably
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.messages import MalformedMessage, Vertex, from_plain, to_plain

RECORD_NAME = "attempt.json"
PROGRAM_DIRECTORY = "program"
LOG_NAME = "driver.log"
CUT_LOG_NAME = f"{LOG_NAME}.1"
_LOG_NAMES = (LOG_NAME, CUT_LOG_NAME)
_KEPT_OF_AN_ENDED_JOB = frozenset({*_LOG_NAMES, "driver.json"})
_ATTEMPTS_WITH_LOGS = 10
_LOG_BYTES_KEPT = 128 << 20
_ATTEMPT_DIRECTORY = re.compile(r"attempt-(\d+)")


class AttemptRecordUnreadable(Exception):
    """An attempt record exists but is not valid. A start could run two attempts at the same time."""


@dataclass(frozen=True)
class AttemptRecord:
    """The newest attempt of a job.

    `pid` on `host` is None until the process was started. `ended`: the attempt is known to be gone.
    `local_directory`: the work directory of the attempt that this one continues, if it does not restore a snapshot.
    `restored_checkpoint_id` is then the one of that attempt.
    `restored_batches`: the last batch of each query in the restored state. `parallelism` is the requested one at the
    start of this attempt, `parallelism_before` the requested one of the previous attempt. They differ if `is_rescaled`.
    `newest_checkpoint_id`: the last completed checkpoint when this attempt began. `first_failure`: the attempt that
    failed first since that checkpoint.
    `pod`: the pod of the driver as namespace/name; None for a process of `host`.
    `batch_numbers`: the range that the attempt's batches may use.
    `final_savepoint`: the directory of the newest final savepoint that was started. If it has a `_metadata`, it is
    complete.
    `python_environment`: the name of the cached environment that the driver runs in.
    `sinks`: the sinks of the queries that this attempt, or one that it continues, was about to start; () before that.
    `secret_hash`: the SHA-256 of the secret by which the job manager recognises the attempt's driver.
    """

    attempt: int
    timeline: str
    work_directory: str
    started_ms: int
    batch_numbers: BatchNumbers
    secret_hash: str
    host: str = ""
    pid: int | None = None
    restored_checkpoint_id: int | None = None
    restored_is_savepoint: bool = False
    restored_location: str | None = None
    ended: bool = False
    local_directory: str | None = None
    restored_batches: dict[str, int] = field(default_factory=dict)
    parallelism: int | None = None
    is_rescaled: bool = False
    parallelism_before: int | None = None
    first_checkpoint_id: int | None = None
    checkpoint_directory: str | None = None
    first_failure: int | None = None
    newest_checkpoint_id: int | None = None
    final_savepoint: str | None = None
    python_environment: str | None = None
    sinks: tuple[Vertex, ...] = ()
    pod: str | None = None

    def has_secret(self, secret: str) -> bool:
        return hmac.compare_digest(hash_of(secret), self.secret_hash)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class JobDirectory:
    def __init__(self, jobs_directory: Path, job_id: str) -> None:
        self.path = jobs_directory / job_id

    def attempt_directory(self, attempt: int) -> Path:
        return self.path / f"attempt-{attempt}"

    def store_program(self, program: Path, name: str) -> None:
        """Copy the program into the job's directory under its own name, durably, and remove an earlier program.

        The upload may be deleted while the job exists. Call this method before the job's graph is stored.
        """
        directory = self.path / PROGRAM_DIRECTORY
        make_directory(directory)
        copy = directory / name
        shutil.copyfile(program, copy)
        sync(copy)
        for earlier in _programs_in(directory):
            if earlier != copy:
                earlier.unlink()
        sync(directory)

    def program(self) -> Path:
        """Return the path of the job's program. Raise FileNotFoundError if it is missing."""
        directory = self.path / PROGRAM_DIRECTORY
        programs = _programs_in(directory) if directory.is_dir() else []
        if not programs:
            raise FileNotFoundError(f"the job's program is missing in {directory}")
        return programs[0]

    def read_record(self) -> AttemptRecord | None:
        """Return the record, or None if no attempt was ever started. Raise AttemptRecordUnreadable or OSError."""
        path = self.path / RECORD_NAME
        try:
            fields: Any = json.loads(path.read_text())
            return from_plain(AttemptRecord, fields)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, MalformedMessage) as error:
            raise AttemptRecordUnreadable(f"{path}: {error}") from error

    def write_record(self, record: AttemptRecord, confirm_term: Callable[[], None] = lambda: None) -> None:
        """Write the record durably.

        If `confirm_term`, called right before the write counts, raises, the old record stays.
        """
        write_durably(self.path / RECORD_NAME, json.dumps(to_plain(record)), confirm_term)

    def attempts(self) -> list[tuple[int, Path]]:
        """Return the directories of the attempts by number, the newest first."""
        if not self.path.is_dir():
            return []
        found = ((_ATTEMPT_DIRECTORY.fullmatch(path.name), path) for path in self.path.iterdir())
        return sorted(((int(match[1]), path) for match, path in found if match is not None), reverse=True)

    def remove_old_attempts(
        self, newest: int, *, needed: str | None = None, first_failure: int | None = None, room: int = _LOG_BYTES_KEPT
    ) -> None:
        """Remove what ended attempts left, except the directory `needed` and the newest logs.

        Args:
            first_failure: the attempt whose log explains why the job restarts; it stays however many follow.
            room: how many bytes the logs may have together.
        """
        if first_failure is not None:
            room -= _log_size(self.attempt_directory(first_failure))
        for number, directory in self.attempts():
            if number >= newest or str(directory) == needed:
                continue
            if number != first_failure:
                room -= _log_size(directory)
            if number == first_failure or (room >= 0 and number > newest - _ATTEMPTS_WITH_LOGS):
                _remove_all_but_logs(directory)
            else:
                shutil.rmtree(directory, ignore_errors=True)

    def keep_logs_only(self) -> None:
        """Remove all files except the logs, because the job is over."""
        for directory in self.path.glob("attempt-*"):
            _remove_all_but_logs(directory)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _programs_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_file())


def _log_size(attempt_directory: Path) -> int:
    logs = (attempt_directory / name for name in _LOG_NAMES)
    return sum(log.stat().st_size for log in logs if log.is_file())


def _remove_all_but_logs(attempt_directory: Path) -> None:
    for path in attempt_directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in _KEPT_OF_AN_ENDED_JOB:
            path.unlink(missing_ok=True)
