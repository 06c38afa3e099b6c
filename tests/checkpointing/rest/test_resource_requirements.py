"""`/jobs/:id/resource-requirements` over HTTP: the format of the answer, and all kinds of invalid bodies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.fake_driver import COUNT, SINK, SOURCE
from tests.checkpointing.jobs.running_job_manager import RunningJobManager


def bounds(lower: Any, upper: Any) -> dict[str, Any]:
    return {"parallelism": {"lowerBound": lower, "upperBound": upper}}


async def put(manager: RunningJobManager, job_id: str, requirements: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(manager.client.put, f"/jobs/{job_id}/resource-requirements", requirements)


async def test_resource_requirements_use_flinks_body(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    found = await manager.get(f"/v1/jobs/{job_id}/resource-requirements")
    assert found == {SOURCE.id: bounds(1, 1), COUNT.id: bounds(1, 2), SINK.id: bounds(1, 1)}
    assert await put(manager, job_id, found) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({COUNT.id: bounds(1, "four")}, f"{COUNT.id}: upperBound: 'four' is not allowed; a whole number is expected"),
        ({COUNT.id: bounds(True, 4)}, f"{COUNT.id}: lowerBound: True is not allowed; a whole number is expected"),
        ({COUNT.id: bounds(None, 4)}, f"{COUNT.id}: lowerBound: None is not allowed; a whole number is expected"),
        (
            {COUNT.id: {"slots": 4}},
            "{'slots': 4} is not allowed; an object with parallelism is expected",
        ),
        ({COUNT.id: 4}, f"{COUNT.id}: 4 is not allowed; an object with parallelism is expected"),
        ({SINK.id: bounds(1, 4)}, f"{SINK.id} (Sink: console): upperBound 4 is not allowed; a source and a sink have"),
        ({"no such": bounds(1, 1)}, "no such: the job has no such vertex"),
    ],
)
async def test_a_body_that_is_not_allowed_changes_nothing(
    manager: RunningJobManager, change: dict[str, Any], message: str
) -> None:
    job_id = await manager.submit_running()
    before = await manager.get(f"/jobs/{job_id}/resource-requirements")
    with pytest.raises(RequestRefused) as refused:
        await put(manager, job_id, before | change)
    assert refused.value.status == 400
    assert message in str(refused.value)
    assert await manager.get(f"/jobs/{job_id}/resource-requirements") == before


async def test_a_vertex_that_is_left_out_is_named(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    with pytest.raises(RequestRefused, match=f"{SINK.id}: the bounds of vertex 'Sink: console' are missing"):
        await put(manager, job_id, {SOURCE.id: bounds(1, 1), COUNT.id: bounds(1, 4)})


async def test_a_job_that_does_not_run_cannot_be_changed(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    requirements = await manager.get(f"/jobs/{job_id}/resource-requirements")
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
    with pytest.raises(RequestRefused, match="The job is CANCELED, not RUNNING") as refused:
        await put(manager, job_id, requirements)
    assert refused.value.status == 409


async def test_an_unknown_job_is_not_found(manager: RunningJobManager) -> None:
    for call in (manager.get(f"/jobs/{'0' * 32}/resource-requirements"), put(manager, "0" * 32, {})):
        with pytest.raises(RequestRefused) as refused:
            await call
        assert refused.value.status == 404
