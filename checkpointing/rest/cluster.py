"""`/overview` and `/config`: information about the job manager itself."""

from __future__ import annotations

import time
from collections import Counter
from importlib import metadata

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.model.status import JobStatus
from checkpointing.rest.job_json import is_running

REFRESH_INTERVAL_MS = 3000  # as in Flink
_ENDED = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)


def _installed_version() -> str:
    """Return the installed version, or a default for a checkout that was never installed."""
    try:
        return metadata.version("waymark")
    except metadata.PackageNotFoundError:
        return "0.2.0"


# Read once when the process starts, because reading files would block the event loop.
VERSION = _installed_version()


class ClusterHandlers:
    """Handlers for the cluster.

    A driver counts as a task manager, each of its subtasks as a used slot. No slot is free.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def overview(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        jobs = self._dispatcher.jobs
        ended = Counter(job.status for job in jobs if job.status in _ENDED)
        ended.update(job.status for job in self._dispatcher.archived_jobs)
        running = [job for job in jobs if is_running(job.record)]
        return JSONResponse(
            {
                "taskmanagers": len(running),
                "slots-total": sum(vertex.parallelism for job in running for vertex in job.vertices),
                "slots-available": 0,
                "jobs-running": sum(not job.status.terminal for job in jobs),
                "jobs-finished": ended[JobStatus.FINISHED],
                "jobs-cancelled": ended[JobStatus.CANCELED],
                "jobs-failed": ended[JobStatus.FAILED],
                "flink-version": f"waymark-{VERSION}",
                "flink-commit": "0000000",
            }
        )

    async def config(self, request: Request) -> JSONResponse:
        """Return Flink's configuration for its UI. The time zone is the job manager's."""
        return JSONResponse(
            {
                "refresh-interval": REFRESH_INTERVAL_MS,
                "timezone-name": time.tzname[0],
                "timezone-offset": -time.timezone * 1000,
                "flink-version": f"waymark-{VERSION}",
                "flink-revision": "0000000",
                "features": {"web-submit": True, "web-cancel": True, "web-rescale": False, "web-history": False},
            }
        )
