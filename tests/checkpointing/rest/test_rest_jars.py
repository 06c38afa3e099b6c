# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager

ENTRY = {"entryClass": "wordcount.py:wordcount"}


async def test_an_upload_is_listed_and_deleted(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()

    (listed,) = (await manager.get("/jars"))["files"]
    assert (listed["id"], listed["name"]) == (jar_id, "wordcount.py")
    assert listed["entry"] == [{"name": "wordcount.py:wordcount", "description": None}]
    await manager.delete_program(jar_id)
    assert (await manager.get("/jars"))["files"] == []


async def test_an_upload_is_handed_out_as_it_came(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    assert (await asyncio.to_thread(downloaded, manager, jar_id)).startswith(b"def wordcount")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(downloaded, manager, f"{jar_id}x")


def downloaded(manager: RunningJobManager, jar_id: str) -> bytes:
    with urllib.request.urlopen(f"{manager.address}/jars/{jar_id}/content", timeout=10) as answer:
        return bytes(answer.read())


async def test_a_job_outlives_the_deletion_of_its_upload(manager: RunningJobManager) -> None:
    await manager.submit_running()
    (listed,) = (await manager.get("/jars"))["files"]
    await manager.delete_program(listed["id"])

    assert Path(manager.launcher.specs[0].program_path).read_text().startswith("def wordcount")


async def test_anything_but_a_program_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=r"Only \.py files") as refusal:
        await manager.upload(name="job.jar")

    assert refusal.value.status == 400


async def test_a_body_without_a_file_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match="multipart/form-data"):
        await manager.post("/jars/upload", {})


async def test_an_upload_past_the_limit_is_refused(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_MAX_UPLOAD_BYTES="1000") as manager:
        with pytest.raises(RequestRefused) as refusal:
            await manager.upload("#" * 2000)

    assert refusal.value.status == 413


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "entryClass: "),
        ({"entryClass": "wordcount.py:nothing"}, "no top-level function 'nothing'"),
        ({"entryClass": "wordcount"}, "entryClass: 'wordcount'"),
        (ENTRY | {"parallelism": 0}, "parallelism: 0"),
        (ENTRY | {"parallelism": "two"}, "parallelism: 'two'"),
        (ENTRY | {"parallelism": 99_999_999_999}, "parallelism: 99999999999"),
        (ENTRY | {"flinkConfiguration": []}, "flinkConfiguration: an object"),
        (ENTRY | {"programArgsList": "--input"}, "programArgsList: "),
        (ENTRY | {"programArgs": "'"}, "programArgs: "),
        (ENTRY | {"claimMode": "STEAL"}, "claimMode: 'STEAL' is not allowed; NO_CLAIM or LEGACY or CLAIM"),
        (ENTRY | {"restoreMode": "STEAL"}, "restoreMode: 'STEAL' is not allowed"),
        (
            ENTRY | {"flinkConfiguration": {"execution.state-recovery.claim-mode": "STEAL"}},
            "execution.state-recovery.claim-mode: 'STEAL' is not allowed; NO_CLAIM or LEGACY or CLAIM",
        ),
        (
            ENTRY | {"flinkConfiguration": {"waymark.executor-uploads.min-size": "much"}},
            "waymark.executor-uploads.min-size: 'much' is not allowed; write a whole number and a unit: b, kb, mb, gb",
        ),
        (
            ENTRY | {"flinkConfiguration": {"execution.savepoint.ignore-unclaimed-state": "maybe"}},
            "execution.savepoint.ignore-unclaimed-state: 'maybe' is not allowed; true or false",
        ),
        (
            ENTRY | {"flinkConfiguration": {"execution.checkpointing.interval": "often"}},
            "execution.checkpointing.interval",
        ),
        (ENTRY | {"flinkConfiguration": {"restart-strategy.type": "hope"}}, "restart-strategy.type"),
        (ENTRY | {"flinkConfiguration": {"execution.checkpointing.savepoint-dir": "/etc"}}, "savepoint-dir"),
        (ENTRY | {"flinkConfiguration": {"a": {}}}, "flinkConfiguration: a has a value"),
        (ENTRY | {"jobId": "x"}, "jobId: 'x'"),
    ],
)
async def test_a_wrong_run_request_starts_nothing(manager: RunningJobManager, body: dict[str, Any], text: str) -> None:
    jar_id = await manager.upload()

    with pytest.raises(RequestRefused) as refusal:
        await manager.post(f"/jars/{jar_id}/run", body)

    assert refusal.value.status == 400
    assert text in str(refusal.value)
    assert await manager.get("/jobs") == {"jobs": []}


async def test_a_program_that_does_not_parse_is_refused_with_its_line(manager: RunningJobManager) -> None:
    jar_id = await manager.upload("def wordcount(spark, args):\n  return (\n")

    with pytest.raises(RequestRefused, match=r"wordcount\.py, line 2"):
        await manager.post(f"/jars/{jar_id}/run", ENTRY)


async def test_a_taken_job_id_is_a_conflict(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(jobId="ab" * 16)
    assert job_id == "ab" * 16

    with pytest.raises(RequestRefused) as refusal:
        await manager.submit(jobId=job_id)

    assert refusal.value.status == 409
    assert len(manager.launcher.drivers) == 1


async def test_an_unknown_program_cannot_be_run(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match="does not exist"):
        await manager.post("/jars/nothing.py/run", ENTRY)


async def test_the_name_comes_from_the_request_the_configuration_or_the_function(manager: RunningJobManager) -> None:
    for request in ({"jobName": "A"}, {"configuration": {"pipeline.name": "B"}}, {}):
        await manager.submit(**request)  # type: ignore[arg-type]

    names = [job["name"] for job in (await manager.get("/jobs/overview"))["jobs"]]
    assert sorted(names) == ["A", "B", "wordcount"]


async def test_program_args_as_one_text_are_split_like_a_shell_does(manager: RunningJobManager) -> None:
    await manager.submit_running(programArgs="--input '/my data' --fast=1")

    assert manager.launcher.specs[0].program_args == ("--input", "/my data", "--fast=1")
