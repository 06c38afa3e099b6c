"""Request bodies must be JSON where JSON is expected, and must not be too large."""

from __future__ import annotations

import pytest

from checkpointing.rest.requests import MAX_JSON_BYTES
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.rest.raw_http import call

JSON = {"Content-Type": "application/json"}
VALIDATE = "/savepoints/validate"
JOB = f"/jobs/{'a' * 32}"
# More than the sockets' buffers hold.
LARGE = [b"x" * (1 << 16)] * 400


@pytest.mark.parametrize(
    "path", [VALIDATE, "/savepoint-disposal", "/jars/x.py/run", f"{JOB}/savepoints", f"{JOB}/stop"]
)
async def test_a_body_that_is_not_json_by_its_type_is_refused(manager: RunningJobManager, path: str) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        answer = await call(manager.address, "POST", path, {"Content-Type": content_type}, b"{}")
        assert (answer.status, "application/json is expected" in answer.text) == (415, True)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=UTF-8", "Application/JSON"])
async def test_json_is_accepted_with_parameters_of_its_content_type(
    manager: RunningJobManager, content_type: str
) -> None:
    answer = await call(manager.address, "POST", VALIDATE, {"Content-Type": content_type}, b"[]")
    assert (answer.status, "not a JSON object" in answer.text) == (400, True)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
async def test_an_empty_body_needs_no_type(manager: RunningJobManager, headers: dict[str, str]) -> None:
    job_id = await manager.submit_running()
    assert (await call(manager.address, "POST", f"/jobs/{job_id}/savepoints", headers)).status == 202


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_json_is_read_up_to_a_limit(manager: RunningJobManager, in_chunks: bool) -> None:
    body = b'{"path": "' + b"x" * MAX_JSON_BYTES + b'"}'
    content = [body[:100], body[100:]] if in_chunks else body
    answer = await call(manager.address, "POST", VALIDATE, JSON, content)
    assert (answer.status, f"larger than {MAX_JSON_BYTES} bytes" in answer.text) == (413, True)


async def test_json_that_nests_too_deep_is_a_bad_request(manager: RunningJobManager) -> None:
    assert (await call(manager.address, "POST", VALIDATE, JSON, b"[" * 100_000)).status == 400


async def test_half_a_character_is_refused_before_it_breaks_the_list_of_jobs(manager: RunningJobManager) -> None:
    jar_id = await manager.upload()
    body = b'{"entryClass": "wordcount.py:wordcount", "jobName": "a\\ud800"}'
    answer = await call(manager.address, "POST", f"/jars/{jar_id}/run", JSON, body)
    assert (answer.status, "an unpaired surrogate" in answer.text) == (400, True)
    assert (await manager.get("/jobs/overview"))["jobs"] == []


async def test_a_program_may_fail_with_half_a_character_in_its_text(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    await driver.report_failure("cannot read \udcff.csv \U0001f600")
    await manager.until(job_id, "FAILED")

    (entry,) = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert "cannot read ?.csv \U0001f600" in entry["stacktrace"]


async def test_flink_run_gets_one_sentence_after_its_whole_body_was_read(manager: RunningJobManager) -> None:
    """Flink's client retries if the connection ends before it has sent the whole body."""
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Connection": "close"}
    answer = await call(manager.address, "POST", "/v1/jobs", headers, LARGE)
    assert (answer.status, "runs PySpark programs, not Flink jobs" in answer.text) == (400, True)


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/overview", 405)])
async def test_other_errors_wait_for_the_body_too(manager: RunningJobManager, path: str, status: int) -> None:
    assert (await call(manager.address, "POST", path, {"Connection": "close"}, LARGE)).status == status
