"""The results of ended jobs, so that no job manager recovers a job that is over (Flink's FileSystemJobResultStore).

A result is *dirty* from the job's end until its data is cleaned up, then *clean*: `<job-id>_DIRTY.json` →
`<job-id>.json`. A new leader does not run a job that has a result. It finishes the clean-up of jobs with dirty results.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpointing.durable_files import sync, write_durably
from checkpointing.model.status import JobStatus

log = logging.getLogger(__name__)

_VERSION = 1
_JOB_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class JobResult:
    """How a job ended. `status` is globally terminal; times are epoch milliseconds.

    `is_saved`: a savepoint contains everything that the job has processed. `keep_state`: the job failed because its
    snapshots could not be used, so the clean-up removes none of them. `keep_files`: the clean-up keeps the files of the
    job's attempts, too, because they are its only state.
    """

    job_id: str
    job_name: str
    status: JobStatus
    started_ms: int
    ended_ms: int
    failure_cause: str | None = None
    is_saved: bool = False
    keep_state: bool = False
    keep_files: bool = False

    def __post_init__(self) -> None:
        if not self.status.globally_terminal:
            raise ValueError(f"{self.status.value} is not a final status: the job may still be recovered")
        if _JOB_ID.fullmatch(self.job_id) is None:
            raise ValueError(f"{self.job_id!r} is not a job id")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.value}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> JobResult:
        return cls(**{**fields, "status": JobStatus(fields["status"])})


class JobResultExists(RuntimeError):
    """The job already has a result."""


class JobResultMissing(LookupError):
    """The job has no result."""


class JobResultStore(Protocol):
    """Stores job results. All methods block, and raise OSError if the storage fails."""

    def create_dirty_result(self, result: JobResult, confirm_term: Callable[[], None] = lambda: None) -> None:
        """Store a result. Raise JobResultExists if the job has one, dirty or clean.

        `confirm_term` is called right before the result becomes visible. If it raises, nothing was written.
        """
        ...

    def mark_as_clean(self, job_id: str) -> None:
        """Mark the result as clean. May be repeated. Raise JobResultMissing if the job has no result."""
        ...

    def has_result(self, job_id: str) -> bool:
        """Return whether the job is over, cleaned up or not."""
        ...

    def has_clean_result(self, job_id: str) -> bool: ...

    def dirty_results(self) -> Sequence[JobResult]:
        """Return the dirty results by job ID.

        An unreadable one is logged and left out; `has_result` is still True for it.
        """
        ...


class FileJobResultStore:
    """Results as files. Clean ones are kept, so that a used job ID is refused forever."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def create_dirty_result(self, result: JobResult, confirm_term: Callable[[], None] = lambda: None) -> None:
        if self.has_result(result.job_id):
            raise JobResultExists(f"job {result.job_id} already has a result")
        text = json.dumps({"version": _VERSION, "result": result.to_json()})
        write_durably(self._dirty(result.job_id), text, confirm_term)

    def mark_as_clean(self, job_id: str) -> None:
        try:
            self._dirty(job_id).replace(self._clean(job_id))
        except FileNotFoundError:
            if not self.has_clean_result(job_id):
                raise JobResultMissing(f"job {job_id} has no result") from None
        else:
            sync(self._directory)

    def has_result(self, job_id: str) -> bool:
        return self._dirty(job_id).exists() or self.has_clean_result(job_id)

    def has_clean_result(self, job_id: str) -> bool:
        return self._clean(job_id).exists()

    def dirty_results(self) -> Sequence[JobResult]:
        read = [_read(file) for file in sorted(self._directory.glob("*_DIRTY.json"))]
        return [result for result in read if result is not None]

    def _dirty(self, job_id: str) -> Path:
        return self._directory / f"{job_id}_DIRTY.json"

    def _clean(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.json"


def _read(file: Path) -> JobResult | None:
    try:
        return JobResult.from_json(json.loads(file.read_text(encoding="utf-8"))["result"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("the job result %s cannot be read and is left as it is: %s", file, error)
        return None
