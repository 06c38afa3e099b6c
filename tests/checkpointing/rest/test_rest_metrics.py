# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""`/jobs/:jobid/metrics`."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import ManualClock
from checkpointing.jobs.job_record import JobRecord
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus
from checkpointing.rest.metrics import status_gauges
from tests.checkpointing.jobs.running_job_manager import RunningJobManager

# What a real Flink 2.3.0 lists for a job.
FLINKS = {
    "lastCheckpointSize", "lastCheckpointExternalPath", "failingTime", "restartingTime", "lastCheckpointMetadataSize",
    "numberOfInProgressCheckpoints", "numberOfCompletedCheckpoints", "lastCheckpointProcessedData", "numRestarts",
    "numRescales", "deployingTime", "createdTime", "lastCheckpointDuration", "numberOfFailedCheckpoints",
    "cancellingTime",
    "lastCheckpointCompletedTimestamp", "totalNumberOfCheckpoints", "lastCompletedCheckpointId",
    "lastCheckpointRestoreTimestamp", "runningTime", "uptime", "initializingTime", "allSubTasksRunningOrFinishedTime",
    "downtime", "lastCheckpointFullSize", "lastCheckpointPersistedData",
}  # fmt: skip


async def metrics(manager: RunningJobManager, job_id: str, query: str = "") -> list[dict[str, Any]]:
    return list(await manager.get_any(f"/jobs/{job_id}/metrics{query}"))


async def aggregated(manager: RunningJobManager, query: str = "") -> list[dict[str, Any]]:
    return list(await manager.get_any(f"/jobs/metrics{query}"))


async def test_no_jobs_have_no_metrics(manager: RunningJobManager) -> None:
    assert await aggregated(manager) == []
    assert await aggregated(manager, "?get=numRestarts") == []


async def test_metrics_of_all_jobs_are_aggregated_as_flink_does(manager: RunningJobManager) -> None:
    first, second = await manager.submit_running(), await manager.submit_running()
    for job_id in (first, first, first, second):
        await manager.checkpoint(job_id)

    assert {entry["id"] for entry in await aggregated(manager)} == FLINKS | {"fullRestarts"}
    name = "numberOfCompletedCheckpoints"
    assert await aggregated(manager, f"?get={name},nonsense,lastCheckpointExternalPath") == [
        {"id": name, "min": 1.0, "max": 3.0, "avg": 2.0, "sum": 4.0, "skew": 50.0}
    ], "neither an unknown gauge nor one that is no number"
    assert await aggregated(manager, f"?get={name}&agg=max,SUM") == [{"id": name, "max": 3.0, "sum": 4.0}]
    assert await aggregated(manager, f"?get={name}&agg=avg&jobs={second},{'0' * 32}") == [{"id": name, "avg": 1.0}]


@pytest.mark.parametrize("query", ["agg=median", "jobs=nothing"])
async def test_a_wrong_aggregation_or_job_is_refused(manager: RunningJobManager, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        await aggregated(manager, f"?get=uptime&{query}")


async def test_without_get_the_names_are_listed_as_flink_does(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    listed = await metrics(manager, job_id)

    assert all(set(entry) == {"id"} for entry in listed)
    assert {entry["id"] for entry in listed} == FLINKS | {"fullRestarts"}


async def test_values_are_texts_with_get_and_unknown_metrics_are_omitted(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)

    names = "lastCompletedCheckpointId,nonsense,numRestarts,lastCompletedCheckpointId"
    assert await metrics(manager, job_id, f"?get={names}") == [
        {"id": "lastCompletedCheckpointId", "value": "1"},
        {"id": "numRestarts", "value": "0"},
    ]
    (path,) = await metrics(manager, job_id, "?get=lastCheckpointExternalPath")
    (size,) = await metrics(manager, job_id, "?get=lastCheckpointMetadataSize")
    assert path["value"].endswith(f"/{job_id}/chk-1")
    metadata = Path(path["value"].removeprefix("file:"), "_metadata")
    assert int(size["value"]) == metadata.stat().st_size
    assert await metrics(manager, job_id, "?get=nonsense") == []


async def test_unknown_job_has_no_metrics(manager: RunningJobManager) -> None:
    assert await metrics(manager, "0" * 32) == []


async def test_a_restart_is_counted(manager: RunningJobManager) -> None:
    restart = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    job_id = await manager.submit_running(restart)
    (await manager.driver(1)).kill(-9)
    await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    assert await metrics(manager, job_id, "?get=numRestarts&get=fullRestarts") == [
        {"id": "numRestarts", "value": "1"},
        {"id": "fullRestarts", "value": "1"},
    ]


# --- the times of a status ------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def record_of(clock: ManualClock) -> JobRecord:
    graph = JobGraph("a" * 32, "wordcount", "jar", "wordcount.py:wordcount")
    return JobRecord(graph, clock, recovered=False)


def above_zero(record: JobRecord, clock: ManualClock) -> dict[str, int | str]:
    return {name: value for name, value in status_gauges(record, clock.now_ms()).items() if value != 0}


def test_only_the_status_of_now_has_a_time(clock: ManualClock) -> None:
    record = record_of(clock)
    clock.advance(1)
    assert above_zero(record, clock) == {"initializingTime": 1000}
    record.move(JobStatus.CREATED, "")
    clock.advance(2)
    assert above_zero(record, clock) == {"createdTime": 2000}
    record.move(JobStatus.RUNNING, "")
    clock.advance(3)
    running = {"runningTime": 3000, "uptime": 3000, "allSubTasksRunningOrFinishedTime": 3000}
    assert above_zero(record, clock) == running
    record.move(JobStatus.FAILING, "")
    clock.advance(4)
    assert above_zero(record, clock) == {"failingTime": 4000, "downtime": 4000}
    record.move(JobStatus.RESTARTING, "")
    clock.advance(5)
    assert above_zero(record, clock) == {"restartingTime": 5000, "downtime": 9000}
    record.move(JobStatus.FAILED, "")
    assert above_zero(record, clock) == {"uptime": -1, "downtime": -1}


def test_a_clock_that_was_set_back_causes_no_negative_time(clock: ManualClock) -> None:
    record = record_of(clock)
    record.move(JobStatus.CREATED, "")
    record.move(JobStatus.RUNNING, "")
    clock.jump(-3600)
    assert above_zero(record, clock) == {}
    record.move(JobStatus.FAILING, "")
    clock.jump(-3600)
    assert above_zero(record, clock) == {}
