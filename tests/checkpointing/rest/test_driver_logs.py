"""The logs of a job's drivers, by attempt, over REST."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path

import pytest

from checkpointing.jobs.driver_logs import MOST_MATCHES
from checkpointing.rest.client import RequestRefused
from checkpointing.rest.driver_logs import MOST_BYTES
from monitoring.reasons.engines import EngineReason
from tests.checkpointing.jobs.fake_driver import COUNT
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


def log_of(manager: RunningJobManager, job_id: str, attempt: int) -> Path:
    directory = manager.settings.state_directory / "jobs" / job_id / f"attempt-{attempt}"
    directory.mkdir(exist_ok=True, parents=True)
    return directory / "driver.log"


async def read(manager: RunningJobManager, path: str, asked: str | None = None) -> tuple[int, Message, bytes]:
    def answer() -> tuple[int, Message, bytes]:
        request = urllib.request.Request(f"{manager.address}{path}", headers={"Range": asked} if asked else {})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    return await asyncio.to_thread(answer)


async def test_the_logs_of_all_attempts_are_listed_newest_first(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RESTARTS)
    log_of(manager, job_id, 1).write_text("starts\n")
    await (await manager.driver(1)).report_failure("a bad row")
    await manager.driver(2)
    log_of(manager, job_id, 2).write_text("starts again\n")
    log_of(manager, job_id, 2).with_name("driver.log.1").write_text("what was cut")

    logs = (await manager.get(f"/jobs/{job_id}/logs"))["logs"]

    found = [(log["name"], log["attempt"], log["size"], log["first-failure"]) for log in logs]
    assert found == [
        ("driver-2.log", 2, 13, False),
        ("driver-2.log.1", 2, 12, False),
        ("driver-1.log", 1, 7, True),
    ]
    assert all(log["start-time"] <= log["mtime"] and log["elsewhere"] is None for log in logs)


async def test_an_attempt_that_was_rescaled_is_not_a_failure(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    log_of(manager, job_id, 1).touch()
    path = f"/jobs/{job_id}/resource-requirements"
    wanted = await manager.get(path) | {COUNT.id: {"parallelism": {"lowerBound": 1, "upperBound": 4}}}
    await asyncio.to_thread(manager.client.put, path, wanted)
    await manager.driver(2)

    (log,) = (await manager.get(f"/jobs/{job_id}/logs"))["logs"]

    assert (log["attempt"], log["first-failure"]) == (1, False)


@pytest.mark.parametrize(
    ("settings", "code", "elsewhere"),
    [
        ({}, None, None),
        (
            {"spark.master": "spark://127.0.0.1:7077"},
            "standalone",
            "The cluster keeps the logs of the executors: open the application",
        ),
        (
            {"spark.master": "yarn", "spark.submit.deployMode": "cluster"},
            "yarn-driver",
            "The cluster keeps the logs of the driver and the executors: run yarn logs",
        ),
    ],
)
async def test_the_list_names_where_a_cluster_stores_other_logs(
    manager: RunningJobManager, settings: dict[str, str], code: str | None, elsewhere: str | None
) -> None:
    job_id = await manager.submit_running()
    log = log_of(manager, job_id, 1)
    log.touch()
    spec = (await manager.driver(1)).spec
    log.with_name("driver.json").write_text(json.dumps(replace(spec, configuration=settings).to_json()))

    (found,) = (await manager.get(f"/jobs/{job_id}/logs"))["logs"]

    assert (found["elsewhere"] or "").startswith(elsewhere or "")
    assert (found["elsewhere"] is None) == (elsewhere is None)
    assert found["elsewhere-code"] == code
    if code:  # Waymark's pages have the same text for the code
        assert found["elsewhere"] == str(EngineReason(f"engines.logs-{code}")())


async def test_a_log_is_read_by_ranges_of_bytes(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    log_of(manager, job_id, 1).write_text("0123456789")
    path = f"/jobs/{job_id}/logs/driver-1.log"

    async def part(asked: str | None) -> tuple[int, str | None, bytes]:
        status, headers, content = await read(manager, path, asked)
        return status, headers["Content-Range"], content

    assert await part(None) == (200, None, b"0123456789")
    assert await part("bytes=2-4") == (206, "bytes 2-4/10", b"234")
    assert await part("bytes=8-") == (206, "bytes 8-9/10", b"89")
    assert await part("bytes=-3") == (206, "bytes 7-9/10", b"789")
    assert await part("bytes=-30") == (206, "bytes 0-9/10", b"0123456789")
    assert (await part("bytes=10-"))[:2] == (416, "bytes */10")
    assert (await part("lines=1-2"))[0] == 400


async def test_no_answer_is_larger_than_the_limit(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    log_of(manager, job_id, 1).write_bytes(b"x" * (MOST_BYTES + 10) + b"end")
    path = f"/jobs/{job_id}/logs/driver-1.log"

    _, headers, content = await read(manager, path)
    assert (len(content), content[-3:]) == (MOST_BYTES, b"end")
    assert headers["Content-Range"] == f"bytes 13-{MOST_BYTES + 12}/{MOST_BYTES + 13}"
    assert len((await read(manager, path, "bytes=0-"))[2]) == MOST_BYTES


async def test_lines_are_found_in_any_case_and_the_last_of_many(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    log_of(manager, job_id, 1).write_text("begins\nan ERROR\n" + "same\n" * (MOST_MATCHES + 1))
    path = f"/jobs/{job_id}/logs/driver-1.log/search"

    found = await manager.get(f"{path}?text=error")
    many = await manager.get(f"{path}?text=same")

    assert found == {"matches": [{"offset": 7, "line": "an ERROR"}], "truncated": False}
    assert (len(many["matches"]), many["truncated"]) == (MOST_MATCHES, True)
    assert many["matches"][0]["offset"] == 16 + len("same\n"), "the earliest is left out"
    with pytest.raises(RequestRefused, match="text: 0 characters are not allowed"):
        await manager.get(path)


async def test_the_lines_of_a_moment_are_found(manager: RunningJobManager) -> None:
    """Python and the JVM write times to the log in the machine's time zone."""
    job_id = await manager.submit_running()
    moments = [datetime(2026, 11, 25, 10, minute, tzinfo=UTC) for minute in range(3)]
    local = [moment.astimezone() for moment in moments]
    lines = [
        f"{local[0]:%Y-%m-%d %H:%M:%S},000 INFO begins\n  of two lines\n",
        f"{local[1]:%Y-%m-%dT%H:%M:%S}.500 WARN from the JVM\n",
    ]
    log_of(manager, job_id, 1).write_text("".join(lines))

    async def position(moment: datetime) -> int:
        time_ms = round(moment.timestamp() * 1000)
        return int((await manager.get(f"/jobs/{job_id}/logs/driver-1.log/position?time={time_ms}"))["offset"])

    assert [await position(moment) for moment in moments] == [0, len(lines[0]), len("".join(lines))]


@pytest.mark.parametrize("name", ["driver-9.log", "driver-1.log.2", "driver.json", "..%2Fattempt.json"])
async def test_only_logs_are_served(manager: RunningJobManager, name: str) -> None:
    job_id = await manager.submit_running()
    assert (await read(manager, f"/jobs/{job_id}/logs/{name}"))[0] == 404


async def test_a_link_in_place_of_the_log_is_not_followed(manager: RunningJobManager, tmp_path: Path) -> None:
    job_id = await manager.submit_running()
    secret = tmp_path / "secret"
    secret.write_text("of another job")
    log_of(manager, job_id, 1).symlink_to(secret)
    assert (await read(manager, f"/jobs/{job_id}/logs/driver-1.log"))[0] == 404


async def test_the_logs_are_kept_when_the_job_has_ended(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path) as manager:
        job_id = await manager.submit_running({"restart-strategy.type": "none"})
        log_of(manager, job_id, 1).write_text("says why\n")
        await (await manager.driver(1)).report_failure("a bad row")
        await manager.until(job_id, "FAILED")
        assert (await read(manager, f"/jobs/{job_id}/logs/driver-1.log"))[2] == b"says why\n"


async def test_an_unknown_job_has_no_logs(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match="not found"):
        await manager.get(f"/jobs/{'0' * 32}/logs")
