"""A change of a running job's parallelism is stored, applied by a restart, and undone if Spark refuses it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from checkpointing.jobs.parallelism import (
    InvalidRequirements,
    ParallelismBounds,
    requested_parallelism,
    required_parallelism,
    requirements_of,
    with_parallelism,
)
from checkpointing.jobs.rescale import unsupported
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import (
    CheckpointKind,
    DriverState,
    ExceptionInfo,
    StateFile,
    SubtaskMetrics,
    Vertex,
    VertexKind,
)
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import COUNT, SINK, SOURCE, FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually


def body(count: int, lower: int = 1) -> dict[str, Any]:
    bounds = {SOURCE.id: (1, 1), COUNT.id: (lower, count), SINK.id: (1, 1)}
    return {vertex: {"parallelism": {"lowerBound": low, "upperBound": high}} for vertex, (low, high) in bounds.items()}


async def put(manager: RunningJobManager, job_id: str, requirements: dict[str, Any]) -> None:
    path = f"/jobs/{job_id}/resource-requirements"
    await asyncio.to_thread(manager.client.put, path, requirements)


async def refused_by_spark(driver: FakeDriver) -> None:
    info = ExceptionInfo("RescaleRefused", "Spark cannot", "RescaleRefused: Spark cannot", 1, recoverable=False)
    await driver._report(DriverState.FAILED, exception=info)
    driver._exit(1)


async def exception_names(manager: RunningJobManager, job_id: str) -> list[str]:
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    return [entry["exceptionName"] for entry in entries]


async def test_a_job_is_restarted_with_its_new_parallelism_after_a_checkpoint(manager: RunningJobManager) -> None:
    """The restart happens although the job has no restart strategy."""
    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)
    await put(manager, job_id, body(4, lower=2))
    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    assert (second.spec.parallelism, second.spec.attempt) == (4, 2)
    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == 2, "a checkpoint is taken before the restart"
    assert await manager.get(f"/jobs/{job_id}/resource-requirements") == body(4, lower=2)
    job = await manager.get(f"/jobs/{job_id}")
    assert [move["status"] for move in job["status-history"]][-4:] == ["RUNNING", "RESTARTING", "CREATED", "RUNNING"]
    assert job["restarts"] == 0
    assert await exception_names(manager, job_id) == []
    assert await manager.checkpoint(job_id) == 3


async def test_unchanged_parallelism_restarts_nothing(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await put(manager, job_id, body(2, lower=2))
    assert await manager.get(f"/jobs/{job_id}/resource-requirements") == body(2, lower=2)
    assert await manager.checkpoint(job_id) == 1
    assert len(manager.launcher.drivers) == 1


async def test_parallelism_refused_by_spark_is_undone(manager: RunningJobManager) -> None:
    manager.launcher.becomes_running = True
    job_id = await manager.submit_running(parallelism=2)
    (await manager.driver(1)).launcher.becomes_running = False
    await put(manager, job_id, body(4))
    second = await manager.driver(2)
    manager.launcher.becomes_running = True
    await refused_by_spark(second)
    third = await manager.driver(3)
    await manager.until(job_id, "RUNNING")

    assert [driver.spec.parallelism for driver in manager.launcher.drivers] == [2, 4, 2]
    assert third.spec.restore is not None
    assert await manager.get(f"/jobs/{job_id}/resource-requirements") == body(2)
    assert await exception_names(manager, job_id) == ["RescaleRefused"]


async def test_a_job_that_is_submitted_with_a_parallelism_that_spark_refuses_fails(manager: RunningJobManager) -> None:
    manager.launcher.becomes_running = False
    job_id = await manager.submit(parallelism=4)
    await refused_by_spark(await manager.driver(1))
    await manager.until(job_id, "FAILED")
    assert len(manager.launcher.drivers) == 1


async def test_without_a_checkpoint_the_change_waits_for_the_next_restart(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(
        {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms",
         "execution.checkpointing.tolerable-failed-checkpoints": "5"}
    )  # fmt: skip
    first = await manager.driver(1)
    first.decline_reason = "CHECKPOINT_DECLINED"
    await put(manager, job_id, body(4))

    async def postponed() -> bool:
        return await exception_names(manager, job_id) == ["RescalePostponed"]

    await eventually(postponed)
    assert await manager.status(job_id) == "RUNNING"
    await first.report_failure("crash")
    assert (await manager.driver(2)).spec.parallelism == 4


async def test_a_postponed_rescale_is_done_when_a_checkpoint_completes(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    first = await manager.driver(1)
    first.decline_reason = "CHECKPOINT_DECLINED"
    await put(manager, job_id, body(4))

    async def postponed() -> bool:
        return await exception_names(manager, job_id) == ["RescalePostponed"]

    await eventually(postponed)
    first.decline_reason = None
    await manager.checkpoint(job_id)

    assert (await manager.driver(2)).spec.parallelism == 4
    await manager.until(job_id, "RUNNING")
    assert await exception_names(manager, job_id) == ["RescalePostponed"], "it is no failure"
    assert await num_rescales(manager, job_id) == "1"


async def num_rescales(manager: RunningJobManager, job_id: str) -> str:
    def read() -> str:
        url = f"{manager.address}/jobs/{job_id}/metrics?get=numRescales"
        with urllib.request.urlopen(url, timeout=30) as response:
            [gauge] = json.load(response)
            return str(gauge["value"])

    return await asyncio.to_thread(read)


async def test_a_stop_with_savepoint_ends_the_job_also_when_a_change_waits(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    first = await manager.driver(1)
    first.decline_reason = "CHECKPOINT_DECLINED"
    await put(manager, job_id, body(4))

    async def postponed() -> bool:
        return bool(await exception_names(manager, job_id))

    await eventually(postponed)
    first.decline_reason = None
    assert "location" in await manager.savepoint(job_id, "stop")
    await manager.until(job_id, "FINISHED")
    assert len(manager.launcher.drivers) == 1


@pytest.mark.zookeeper
async def test_a_job_manager_that_dies_in_between_leaves_the_change_to_the_next(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running()
        driver = await first.driver(1)
        driver.acknowledges = False
        await put(first, job_id, body(4))
        await eventually(lambda: driver.triggers)
    driver.acknowledges = True
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        rescaled = await second.driver(2)
        await second.until(job_id, "RUNNING")
        assert rescaled.spec.parallelism == 4
        assert rescaled.spec.restore is not None
        assert await second.get(f"/jobs/{job_id}/resource-requirements") == body(4)


# --- requested values ------------------------------------------------------------------------------------------------

JOB = JobGraph("ab" * 16, "words", "jar", "words:main")
VERTICES = (SOURCE, COUNT, SINK)
TOTAL = Vertex("4" * 32, "total", VertexKind.STATEFUL, 1, "wordcount")
OTHER = Vertex("5" * 32, "other", VertexKind.STATEFUL, 2, "second")


def bounds(upper: dict[Vertex, int]) -> dict[str, ParallelismBounds]:
    return {vertex.id: ParallelismBounds(1, number) for vertex, number in upper.items()}


def test_a_rescale_changes_the_setting_that_defines_the_parallelism() -> None:
    assert requested_parallelism(JOB) is None
    assert requested_parallelism(with_parallelism(JOB, 3)) == 3
    set_by_spark = replace(JOB, parallelism=2, configuration={"spark.sql.shuffle.partitions": "8"})
    changed = with_parallelism(set_by_spark, 16)
    assert (requested_parallelism(set_by_spark), requested_parallelism(changed), changed.parallelism) == (8, 16, 2)
    assert JobGraph.from_json(changed.to_json()) == changed


def test_a_job_without_a_requested_parallelism_shows_the_actual_one() -> None:
    assert requirements_of(JOB, VERTICES) == bounds({SOURCE: 1, COUNT: 2, SINK: 1})
    assert requirements_of(replace(JOB, parallelism=7), VERTICES) == bounds({SOURCE: 1, COUNT: 7, SINK: 1})


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ({}, f"{SOURCE.id}: the bounds of vertex 'Source: lines' are missing"),
        (bounds({SOURCE: 1, COUNT: 4, SINK: 1, OTHER: 4}), f"{OTHER.id}: the job has no such vertex"),
        (bounds({SOURCE: 2, COUNT: 4, SINK: 1}), "upperBound 2 is not allowed; a source and a sink have one subtask"),
        (bounds({SOURCE: 1, COUNT: 0, SINK: 1}), "upperBound 0 is not allowed; from 1 to 32768"),
        (
            {**bounds({SOURCE: 1, SINK: 1}), COUNT.id: ParallelismBounds(0, 4)},
            "lowerBound 0 is not allowed; at least 1",
        ),
        ({**bounds({SOURCE: 1, SINK: 1}), COUNT.id: ParallelismBounds(5, 4)}, "lowerBound 5 is above upperBound 4"),
    ],
)
def test_bounds_that_are_not_allowed_are_named(requirements: dict[str, ParallelismBounds], expected: str) -> None:
    with pytest.raises(InvalidRequirements, match=expected):
        required_parallelism(requirements, VERTICES)


def test_stateful_vertices_have_one_parallelism_together() -> None:
    vertices = (COUNT, OTHER)
    with pytest.raises(InvalidRequirements, match=r"they share spark\.sql\.shuffle\.partitions\. Set the same"):
        required_parallelism(bounds({COUNT: 4, OTHER: 5}), vertices)
    assert required_parallelism(bounds({COUNT: 4, OTHER: 4}), vertices) == 4


def test_a_state_without_keys_remains_in_one_partition() -> None:
    with pytest.raises(InvalidRequirements, match="keeps all state in one partition"):
        required_parallelism(bounds({COUNT: 4, TOTAL: 1}), (COUNT, TOTAL))
    assert required_parallelism(bounds({COUNT: 2, TOTAL: 1}), (COUNT, TOTAL)) == 2
    assert required_parallelism(bounds({OTHER: 4, TOTAL: 1}), (OTHER, TOTAL)) == 4, "another query's"


def test_a_job_without_state_has_nothing_to_rescale() -> None:
    with pytest.raises(InvalidRequirements, match="no stateful vertex"):
        required_parallelism(bounds({SOURCE: 1, SINK: 1}), (SOURCE, SINK))


@pytest.mark.parametrize(("name", "allowed"), [("7.delta", False), ("7.snapshot", False), ("7_ab.changelog", True)])
def test_the_state_store_provider_is_recognized_by_its_files(name: str, allowed: bool) -> None:
    file = StateFile(f"state/0/0/{name}", name, 1, "")
    operator = OperatorState(
        "2" * 32, "count", VertexKind.STATEFUL, "q", 1, (SubtaskState(0, SubtaskMetrics(), (file,), 0),)
    )
    properties = CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION)
    checkpoint = CompletedCheckpoint("ab" * 16, "words", "w:m", 7, properties, 0, 0, (operator,), {"q": 7}, "/c", None)
    assert (unsupported(checkpoint) is None) is allowed
