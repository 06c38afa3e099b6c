"""`/jobs/:jobid/metrics`: Flink's gauges of a job, as texts. `/jobs/metrics`: the same over several jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.coordinator.stats_json import checkpoint_gauges
from checkpointing.ids import is_id
from checkpointing.jobs.dispatcher import Dispatcher, JobNotFound
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.job_record import JobRecord
from checkpointing.model.status import JobStatus
from checkpointing.rest.errors import bad_request
from checkpointing.rest.requests import path_id

# The value for a job that has ended.
NO_LONGER_RUNNING = -1

_TIME_IN = {
    "initializingTime": JobStatus.INITIALIZING,
    "createdTime": JobStatus.CREATED,
    "runningTime": JobStatus.RUNNING,
    "failingTime": JobStatus.FAILING,
    "restartingTime": JobStatus.RESTARTING,
    "cancellingTime": JobStatus.CANCELLING,
}


def _skew(values: Sequence[float]) -> float:
    """Return the mean deviation from the mean in per cent of the mean, at most 100, as Flink does."""
    mean = fmean(values)
    return min(100.0, fmean(abs(mean - value) for value in values) / mean * 100) if mean else 0.0


_AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": fmean,
    "sum": sum,
    "skew": _skew,
}


class MetricHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def job(self, request: Request) -> JSONResponse:
        """Return the names of all gauges, or with `?get=a,b` their values. Unknown gauges are left out, as in Flink."""
        gauges = self._gauges(path_id(request, "jobid"))
        wanted = _listed(request, "get")
        if not wanted:
            return JSONResponse([{"id": name} for name in gauges])
        known = [name for name in wanted if name in gauges]
        return JSONResponse([{"id": name, "value": str(gauges[name])} for name in known])

    async def jobs(self, request: Request) -> JSONResponse:
        """Return the names of the jobs' gauges; with `?get=a,b` those gauges over all jobs, or over `jobs=id,id`.

        `agg=min,max,avg,sum,skew` chooses the figures, all by default. Gauges that are not numbers are left out.
        """
        gauges = [self._gauges(job_id) for job_id in self._chosen_jobs(request)]
        wanted = _listed(request, "get")
        chosen = _aggregations(request)
        if not wanted:
            return JSONResponse([{"id": name} for name in dict.fromkeys(name for each in gauges for name in each)])
        values = {name: [float(each[name]) for each in gauges if isinstance(each.get(name), int)] for name in wanted}
        return JSONResponse(
            [
                {"id": name, **{aggregation: _AGGREGATIONS[aggregation](found) for aggregation in chosen}}
                for name, found in values.items()
                if found
            ]
        )

    def _chosen_jobs(self, request: Request) -> list[str]:
        self._dispatcher.require_leading()
        chosen = _listed(request, "jobs")
        for job_id in chosen:
            if not is_id(job_id):
                raise bad_request(f"jobs: {job_id!r} is not allowed; 32 hexadecimal digits are expected")
        return chosen or [job.graph.job_id for job in self._dispatcher.jobs]

    def _gauges(self, job_id: str) -> dict[str, int | str]:
        """Return the gauges of a job. An unknown job has none: Flink answers with an empty list, not with 404."""
        try:
            return job_gauges(self._dispatcher.job(job_id), self._dispatcher.services.clock.now_ms())
        except JobNotFound:
            return {}


def _listed(request: Request, name: str) -> list[str]:
    """Return the values of a query parameter: separated by commas, or the parameter repeated."""
    parts = (part for text in request.query_params.getlist(name) for part in text.split(","))
    return list(dict.fromkeys(part for part in parts if part))


def _aggregations(request: Request) -> list[str]:
    chosen = [name.lower() for name in _listed(request, "agg")]
    for name in chosen:
        if name not in _AGGREGATIONS:
            raise bad_request(f"agg: {name!r} is not allowed; {', '.join(_AGGREGATIONS)} are allowed")
    return chosen or list(_AGGREGATIONS)


def job_gauges(job: JobMaster, now_ms: int) -> dict[str, int | str]:
    """Return the gauges. Times are in milliseconds; that of a status is 0 if the job has another status."""
    return {
        **checkpoint_gauges(job.checkpoints.stats.snapshot()),
        "numRestarts": job.record.num_restarts,
        "fullRestarts": job.record.num_restarts,  # the name before Flink 1.20
        "numRescales": job.record.num_rescales,
        **status_gauges(job.record, now_ms),
    }


def status_gauges(record: JobRecord, now_ms: int) -> dict[str, int | str]:
    since = max(0, now_ms - record.state.last_modified_ms)
    is_running = record.status is JobStatus.RUNNING
    is_over = record.status.terminal
    deploying = _deploying_since(record)
    return {
        **{name: since if record.status is status else 0 for name, status in _TIME_IN.items()},
        "deployingTime": 0 if deploying is None else max(0, now_ms - deploying),
        "allSubTasksRunningOrFinishedTime": since if is_running else 0,
        "uptime": NO_LONGER_RUNNING if is_over else since if is_running else 0,
        "downtime": NO_LONGER_RUNNING if is_over else _outage(record, now_ms),
    }


def _deploying_since(record: JobRecord) -> int | None:
    """Return when the driver was launched if its queries do not run yet, else None."""
    attempt = record.attempt
    if record.status is not JobStatus.CREATED or attempt is None or attempt.ended.done():
        return None
    return attempt.record.started_ms


def _outage(record: JobRecord, now_ms: int) -> int:
    """Return the time since the job last ran, or 0 while it runs and if it never ran."""
    left_running = [move.at_ms for move in record.state.moves if move.source is JobStatus.RUNNING]
    if record.status is JobStatus.RUNNING or not left_running:
        return 0
    return max(0, now_ms - left_running[-1])
