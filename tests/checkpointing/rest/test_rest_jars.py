# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
from __future__ import annotations

import asyncio
import urllib.error
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from checkpointing.masking import HIDDEN
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import PROGRAM, RunningJobManager, running_job_manager
from tests.checkpointing.rest.raw_http import call
from tests.urls import read

ENTRY = {"entryClass": "wordcount.py:wordcount"}


async def test_an_upload_is_listed_and_deleted(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()

    (listed,) = (await manager.get("/jars"))["files"]
    assert (listed["id"], listed["name"]) == (jar_id, "wordcount.py")
    assert listed["entry"] == [{"name": "wordcount.py:wordcount", "description": None}]
    await manager.delete_program(jar_id)
    assert (await manager.get("/jars"))["files"] == []


async def test_an_upload_is_returned_unchanged(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    assert (await asyncio.to_thread(downloaded, manager, jar_id)).startswith(b"def wordcount")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(downloaded, manager, f"{jar_id}x")


def downloaded(manager: RunningJobManager, jar_id: str) -> bytes:
    return read(f"{manager.address}/jars/{jar_id}/content")


async def test_a_job_continues_after_the_deletion_of_its_upload(manager: RunningJobManager) -> None:
    await manager.submit_running()
    (listed,) = (await manager.get("/jars"))["files"]
    await manager.delete_program(listed["id"])

    assert Path(manager.launcher.specs[0].program_path).read_text().startswith("def wordcount")


async def test_upload_other_than_a_program_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=r"Only \.py files") as refusal:
        await manager.upload(name="job.jar")

    assert refusal.value.status == 400


async def test_a_file_name_that_is_too_long_is_a_bad_request(manager: RunningJobManager) -> None:
    head = f'--b\r\nContent-Disposition: form-data; name="jarfile"; filename="{"x" * 300}.py"\r\n\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await call(manager.address, "POST", "/jars/upload", headers, f"{head}{PROGRAM}\r\n--b--\r\n".encode())

    assert (answer.status, "303 bytes long; at most 200 are allowed" in answer.text) == (400, True)


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


@pytest.mark.parametrize("number", ["0", "-1", "many"])
async def test_a_job_that_would_retain_no_checkpoint_is_refused(manager: RunningJobManager, number: str) -> None:
    """Flink treats numbers below 1 as 1. Waymark refuses them."""
    with pytest.raises(RequestRefused) as refusal:
        await manager.submit({"execution.checkpointing.num-retained": number})

    assert refusal.value.status == 400
    allowed = "write a whole number" if number == "many" else "at least 1"
    assert str(refusal.value) == f"execution.checkpointing.num-retained: '{number}' is not allowed; {allowed}"


async def test_a_program_that_does_not_parse_is_refused_with_its_line(manager: RunningJobManager) -> None:
    jar_id = await manager.upload("def wordcount(spark, args):\n  return (\n")

    with pytest.raises(RequestRefused, match=r"wordcount\.py, line 2"):
        await manager.post(f"/jars/{jar_id}/run", ENTRY)


async def test_a_used_job_id_is_a_conflict(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(jobId="ab" * 16)
    assert job_id == "ab" * 16

    with pytest.raises(RequestRefused) as refusal:
        await manager.submit(jobId=job_id)

    assert refusal.value.status == 409
    assert len(manager.launcher.drivers) == 1


async def test_an_unknown_program_cannot_be_run(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match="does not exist"):
        await manager.post("/jars/nothing.py/run", ENTRY)


async def test_the_name_is_that_of_the_request_the_configuration_or_the_function(manager: RunningJobManager) -> None:
    for request in ({"jobName": "A"}, {"configuration": {"pipeline.name": "B"}}, {}):
        await manager.submit(**request)  # type: ignore[arg-type]

    names = [job["name"] for job in (await manager.get("/jobs/overview"))["jobs"]]
    assert sorted(names) == ["A", "B", "wordcount"]


QUERY = "entry-class=wordcount.py:wordcount&parallelism=3&allowNonRestoredState=true"


async def run_spec(manager: RunningJobManager, query: str, body: dict[str, Any] | None = None) -> DriverSpec:
    """Run the program and return its driver's specification."""
    jar_id = await manager.upload()
    job_id = (await manager.post(f"/jars/{jar_id}/run?{query}", body or {}))["jobid"]
    await manager.until(job_id, "RUNNING")
    return manager.launcher.specs[-1]


async def test_flinks_query_parameters_are_accepted(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    path = (await manager.savepoint(await manager.submit_running()))["location"]
    query = f"{QUERY}&programArg=--input,/in&programArg=--fast&savepointPath={urllib.parse.quote(path)}"
    job_id = (await manager.post(f"/jars/{jar_id}/run?{query}"))["jobid"]
    await manager.until(job_id, "RUNNING")

    spec = manager.launcher.specs[-1]
    assert (spec.entry_class, spec.parallelism, spec.program_args) == (
        "wordcount.py:wordcount",
        3,
        ("--input", "/in", "--fast"),
    )
    assert spec.restore is not None
    assert (f"file:{spec.restore.directory}", spec.restore.allow_non_restored_state) == (path, True)


async def test_a_request_in_the_form_of_flinks_web_ui_runs(manager: RunningJobManager) -> None:
    """Flink 2.3's pages send all values twice, in the query and in the body. Numbers are text, and no value is null."""
    body = {"entryClass": "wordcount.py:wordcount", "parallelism": "3", "programArgs": "--input '/my data'",
            "savepointPath": None, "allowNonRestoredState": None}  # fmt: skip
    spec = await run_spec(manager, f"{QUERY}&program-args=--input%20'/my%20data'", body)

    assert (spec.parallelism, spec.program_args) == (3, ("--input", "/my data"))


async def test_the_body_counts_before_the_query(manager: RunningJobManager) -> None:
    body = {"parallelism": 2, "programArgsList": ["--body"], "allowNonRestoredState": "false"}
    spec = await run_spec(manager, f"{QUERY}&programArg=--query", body)

    assert (spec.parallelism, spec.program_args) == (2, ("--body",))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("entry-class=wordcount.py:nothing", "no top-level function 'nothing'"),
        ("entry-class=wordcount.py:wordcount&parallelism=two", "parallelism: 'two' is not allowed"),
        (f"{QUERY}&allowNonRestoredState=maybe", "allowNonRestoredState: 'maybe' is not allowed; true or false"),
        (f"{QUERY}&programArg=a&program-args=b", "programArgs and programArgsList: only one"),
    ],
)
async def test_a_wrong_query_parameter_starts_nothing(manager: RunningJobManager, query: str, text: str) -> None:
    jar_id = await manager.upload()
    with pytest.raises(RequestRefused, match=text) as refusal:
        await manager.post(f"/jars/{jar_id}/run?{query}")

    assert refusal.value.status == 400
    assert manager.launcher.drivers == []


SECRETS = {"spark.hadoop.fs.s3a.secret.key": "abc123", "pipeline.name": "Words"}


async def test_secrets_are_hidden_in_both_configurations_and_complete_in_the_launch_record(
    manager: RunningJobManager,
) -> None:
    arguments = ["--password=abc123", "--token", "abc123", "redis://me:abc123@host/0"]
    job_id = await manager.submit_running(SECRETS, programArgsList=arguments)
    listed = await manager.get_any(f"/jobs/{job_id}/jobmanager/config")
    config = await manager.get(f"/jobs/{job_id}/config")

    assert "abc123" not in f"{listed} {config}"
    hidden = {"spark.hadoop.fs.s3a.secret.key": HIDDEN, "pipeline.name": "Words"}
    assert {each["key"]: each["value"] for each in listed} == config["launch"]["flinkConfiguration"] == hidden
    launch = await manager.get(f"/jobs/{job_id}/launch")
    assert (launch["programArgsList"], launch["flinkConfiguration"]) == (arguments, SECRETS)


async def test_a_hidden_value_cannot_be_run_with(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    for wrong in ({"flinkConfiguration": {"my.token": HIDDEN}}, {"programArgsList": [f"--token={HIDDEN}"]}):
        with pytest.raises(RequestRefused, match="has a hidden value"):
            await manager.post(f"/jars/{jar_id}/run", {**ENTRY, **wrong})


async def test_program_args_as_one_text_are_split_like_a_shell_does(manager: RunningJobManager) -> None:
    await manager.submit_running(programArgs="--input '/my data' --fast=1")

    assert manager.launcher.specs[0].program_args == ("--input", "/my data", "--fast=1")
