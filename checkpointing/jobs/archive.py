"""The archive of ended jobs: their last REST answers, for later job managers (Flink's archived execution graphs).

Each ended job has one file in its directory. The file is written with the job's result and removed with its logs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.durable_files import write_durably
from checkpointing.jobs.services import JobServices
from checkpointing.model.status import JobStatus

ARCHIVE_NAME = "archive.json"
OVERVIEW = "/jobs/overview"
"""The path whose answer is not below the job's own path. The archive stores only the job's entry of it."""

Answers = Mapping[str, Any]
"""A job's answers as JSON, by path below `/jobs/:jobid`."""

_VERSION = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchivedJob:
    job_id: str
    status: JobStatus
    ended_ms: int
    answers: Answers

    @property
    def overview(self) -> Any:
        return self.answers[OVERVIEW]


class JobArchive:
    """The archived jobs, for display only. A job whose archive cannot be written or read is no longer shown."""

    def __init__(self, services: JobServices) -> None:
        self._services = services
        self._jobs: dict[str, ArchivedJob] = {}

    @property
    def jobs(self) -> Sequence[ArchivedJob]:
        """Return the jobs that `load` found, the newest first."""
        return sorted(self._jobs.values(), key=lambda job: job.ended_ms, reverse=True)

    async def load(self) -> bool:
        """Read the archives of jobs whose result is stored. Return True. Raise OSError if they cannot be read now."""
        self._jobs = {job.job_id: job for job in await self._services.io.read("the archive", self._read_all)}
        return True

    async def write(self, job_id: str, answers: Answers) -> None:
        """Write the job's archive. Log errors instead of raising them."""
        file = self._services.jobs_directory / job_id / ARCHIVE_NAME
        try:
            text = json.dumps({"version": _VERSION, "answers": answers})
            await self._services.io.run(lambda: write_durably(file, text))
        except (OSError, ValueError, TypeError) as error:
            logger.warning("job %s: it will not be shown after a restart of the job manager: %s", job_id, error)

    def drop(self, job_id: str) -> None:
        """Stop showing the job. Its file is removed with its directory."""
        self._jobs.pop(job_id, None)

    def _read_all(self) -> list[ArchivedJob]:
        results = self._services.high_availability.job_results
        files = sorted(self._services.jobs_directory.glob(f"*/{ARCHIVE_NAME}"))
        found = [_read(file) for file in files if results.has_result(file.parent.name)]
        return [job for job in found if job is not None]


def _read(file: Path) -> ArchivedJob | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r} is not supported")
        answers = content["answers"]
        status, ended_ms = JobStatus(answers[OVERVIEW]["state"]), int(answers[OVERVIEW]["end-time"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("the archived job %s cannot be read and is not shown: %s", file, error)
        return None
    return ArchivedJob(file.parent.name, status, ended_ms, answers)
