"""An imported query is continued by one job at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkpointing.ha.job_graphs import StandaloneJobGraphStore
from checkpointing.jobs.continued_queries import AlreadyContinued, check_not_continued
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.checkpointing.spark.recordings import unpacked

RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return unpacked("count in rocksdb format 2", tmp_path / "count").location


async def _import(manager: RunningJobManager, **locations: Path) -> dict[str, Any]:
    """Import locations, by query, and return the result. The query of the recording is named `words`."""
    checkpoints = {query: str(path) for query, path in locations.items()}
    body = {"checkpoints": checkpoints, "entryClass": "wordcount.py:wordcount"}
    trigger = (await manager.post("/savepoints/import", body))["request-id"]
    return await manager.operation(f"/savepoints/import/{trigger}")


async def _imported(manager: RunningJobManager, location: Path) -> str:
    return str((await _import(manager, words=location))["location"])


def _refusal(location: Path, job_id: str, status: str = "RUNNING") -> str:
    return str(AlreadyContinued(str(location), job_id, "wordcount", JobStatus(status)))


def test_the_refusal_names_the_location_the_job_its_status_and_the_command_that_ends_it() -> None:
    job = JobGraph("ab" * 16, "orders", "jar", "orders.py", imported_queries=("other", "query"))
    with pytest.raises(AlreadyContinued) as refused:
        check_not_continued({"query": "/checkpoints/orders"}, [(job, JobStatus.RESTARTING)])
    assert (refused.value.location, refused.value.job_id) == ("/checkpoints/orders", "ab" * 16)
    assert (refused.value.job_name, refused.value.status) == ("orders", JobStatus.RESTARTING)
    for named in ("/checkpoints/orders", "orders", "ab" * 16, "RESTARTING", f"manage.py job cancel {'ab' * 16}"):
        assert named in str(refused.value)


@pytest.mark.parametrize("status", list(JobStatus))
def test_only_a_job_that_has_ended_leaves_its_queries_to_others(status: JobStatus) -> None:
    job = JobGraph("ab" * 16, "orders", "jar", "orders.py", imported_queries=("query",))
    if status in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED):
        check_not_continued({"query": "/l"}, [(job, status)])
    else:
        with pytest.raises(AlreadyContinued):
            check_not_continued({"query": "/l"}, [(job, status)])
    check_not_continued({"another": "/l"}, [(job, status)])


async def test_a_second_job_is_refused_until_the_first_has_ended(manager: RunningJobManager, location: Path) -> None:
    savepoint, other = await _imported(manager, location), await _imported(manager, location)
    first = await manager.submit_running(savepointPath=savepoint)
    shown = await manager.get(f"/jobs/{first}/config")
    assert shown["imported-queries"] == [json.loads((location / "metadata").read_text())["id"]]
    for path in (savepoint, other):
        with pytest.raises(RequestRefused) as refused:
            await manager.submit(savepointPath=path)
        assert refused.value.status == 400
        assert _refusal(location, first) in str(refused.value)
    assert len(manager.launcher.drivers) == 1

    await manager.cancel(first)
    await manager.until(first, "CANCELED")
    await manager.submit_running(savepointPath=savepoint)


async def test_an_import_is_refused_before_anything_is_copied(manager: RunningJobManager, location: Path) -> None:
    first = await manager.submit_running(savepointPath=await _imported(manager, location))
    savepoints = manager.settings.state_directory / "savepoints"
    before = sorted(savepoints.iterdir())

    cause = (await _import(manager, words=location))["failure-cause"]
    assert (cause["class"], cause["refusal"]["code"]) == ("AlreadyContinued", "imports.continued")
    assert _refusal(location, first) in cause["stack-trace"]
    body = {"checkpoints": {"words": str(location)}}
    [found] = (await manager.post("/savepoints/import/validate", body))["checkpoints"]
    assert (found["valid"], found["reason"]) == (False, _refusal(location, first))
    assert sorted(savepoints.iterdir()) == before

    await manager.cancel(first)
    await manager.until(first, "CANCELED")
    [found] = (await manager.post("/savepoints/import/validate", body))["checkpoints"]
    assert (found["valid"], found["reason"]) == (True, "")
    await manager.submit_running(savepointPath=await _imported(manager, location))


async def test_a_copy_of_the_location_has_the_same_query(
    manager: RunningJobManager, location: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(location, tmp_path / "copy"))
    savepoint, of_copy = await _imported(manager, location), await _imported(manager, copy)
    first = await manager.submit_running(savepointPath=savepoint)
    with pytest.raises(RequestRefused) as refused:
        await manager.submit(savepointPath=of_copy)
    assert _refusal(copy, first) in str(refused.value)


async def test_a_job_of_another_query_starts(manager: RunningJobManager, location: Path, tmp_path: Path) -> None:
    await manager.submit_running(savepointPath=await _imported(manager, location))
    other = unpacked("count in rocksdb format 1", tmp_path / "other").location
    assert (other / "metadata").read_text() != (location / "metadata").read_text()
    await manager.submit_running(savepointPath=await _imported(manager, other))


async def test_a_job_from_a_savepoint_of_the_first_continues_its_queries(
    manager: RunningJobManager, location: Path
) -> None:
    imported = await _imported(manager, location)
    first = await manager.submit_running(savepointPath=imported)
    saved = (await manager.savepoint(first, "stop"))["location"]
    await manager.until(first, "FINISHED")
    second = await manager.submit_running(savepointPath=saved)
    third = await manager.savepoint(second, "stop")
    await manager.until(second, "FINISHED")
    newest = await manager.submit_running(savepointPath=third["location"])

    with pytest.raises(RequestRefused) as refused:
        await manager.submit(savepointPath=imported)
    assert _refusal(location, newest) in str(refused.value)


async def test_a_job_restarts_after_a_failure(manager: RunningJobManager, location: Path) -> None:
    job_id = await manager.submit_running(RESTART, savepointPath=await _imported(manager, location))
    (await manager.driver(1)).kill(137)
    await manager.driver(2)
    await manager.until(job_id, "RUNNING")


async def test_one_of_two_concurrent_starts_is_refused(manager: RunningJobManager, location: Path) -> None:
    savepoint = await _imported(manager, location)
    jar_id = await manager.upload()
    body = {"entryClass": "wordcount.py:wordcount", "savepointPath": savepoint}
    answers = await asyncio.gather(
        *(manager.post(f"/jars/{jar_id}/run", body) for _ in range(4)), return_exceptions=True
    )
    (job_id,) = [answer["jobid"] for answer in answers if isinstance(answer, dict)]
    refusals = [str(answer) for answer in answers if isinstance(answer, RequestRefused)]
    assert len(refusals) == 3
    assert all(str(location) in each and job_id in each for each in refusals)


@pytest.mark.zookeeper
async def test_the_next_leader_also_refuses_a_continued_query(cluster: Cluster, location: Path) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        savepoint = await _imported(first, location)
        job_id = await first.submit_running(savepointPath=savepoint)

    async with cluster.job_manager() as second:
        await leads(second)
        with pytest.raises(RequestRefused) as refused:
            await second.submit(savepointPath=savepoint)
        assert job_id in str(refused.value)
        cluster.drivers_find(second)
        await second.until(job_id, "RUNNING")
        with pytest.raises(RequestRefused) as refused:
            await second.submit(savepointPath=savepoint)
        assert _refusal(location, job_id) in str(refused.value)


async def test_a_leader_that_does_not_know_all_jobs_starts_no_import(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_job_manager(tmp_path) as first:
        savepoint = await _imported(first, location)
    stored, is_away = "ab" * 16, True

    def unreadable(self: StandaloneJobGraphStore, job_id: str) -> JobGraph | None:
        if is_away:
            raise OSError("the storage is away")
        return None

    monkeypatch.setattr(StandaloneJobGraphStore, "job_ids", lambda self: (stored,))
    monkeypatch.setattr(StandaloneJobGraphStore, "recover", unreadable)
    async with running_job_manager(tmp_path) as second:
        body = {"checkpoints": {"words": str(location)}, "entryClass": "wordcount.py:wordcount"}
        for request in (
            lambda: second.submit(savepointPath=savepoint),
            lambda: second.post("/savepoints/import", body),
            lambda: second.post("/savepoints/import/validate", body),
        ):
            with pytest.raises(RequestRefused, match=f"{stored} is stored, but could not be recovered yet") as refused:
                await request()
            assert refused.value.status == 503
        await second.submit_running()
        is_away = False

        async def is_recovered() -> bool:
            with contextlib.suppress(RequestRefused):
                return bool(await second.post("/savepoints/import/validate", body))
            return False

        await eventually(is_recovered)
        await second.submit_running(savepointPath=savepoint)
