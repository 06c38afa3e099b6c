# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""A job with a real job manager and real drivers is killed within a batch, then rescaled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkpointing.storage import verify
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import PROGRAMS, Words

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S = 180.0
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1",
           "restart-strategy.fixed-delay.delay": "10 ms"}  # fmt: skip


class WordCount:
    """The job, its input and its output."""

    def __init__(self, manager: RunningJobManager, words: Words, job_id: str) -> None:
        self.manager = manager
        self.words = words
        self.job_id = job_id
        self.expected: Counter[str] = Counter()

    def feed(self, number: int) -> None:
        self.expected.update({f"w{number}": 1, "all": 1})
        self.words.write(f"f{number}", [f"w{number}", "all"])

    async def has_counted(self) -> None:
        await soon(lambda: self.words.counts() == self.expected, LIMIT_S)

    async def details(self) -> dict[str, Any]:
        return await self.manager.get(f"/jobs/{self.job_id}")

    async def runs_attempt(self, number: int) -> dict[str, Any]:
        async def running() -> dict[str, Any] | None:
            found = await self.details()
            ready = found["state"] == "RUNNING" and found["attempts"][0]["attempt"] == number
            return found if ready and found["vertices"] else None

        return dict(await soon(running, LIMIT_S))

    async def checkpoint(self) -> dict[str, Any]:
        """Take a checkpoint and return its details."""
        number = await self.manager.checkpoint(self.job_id)
        return await self.manager.get(f"/jobs/{self.job_id}/checkpoints/details/{number}")


async def test_a_killed_job_replays_nothing_and_continues_with_more_partitions(
    manager: RunningJobManager, words: Words
) -> None:
    job_id = await submitted(manager, words)
    job = WordCount(manager, words, job_id)
    details = await job.runs_attempt(1)
    job.feed(1)
    await job.has_counted()
    await job.checkpoint()
    job.feed(2)
    await job.has_counted()
    [unpacked] = temporary_directories(manager)
    assert {path.name.split("-")[0] for path in unpacked.iterdir()} >= {"liblz4", "spark"}

    await killed_in_a_batch(job, details["attempts"][0]["pid"])
    details = await job.runs_attempt(2)
    await job.has_counted()
    assert details["attempts"][0]["restored-from"] == "local"
    assert details["attempts"][0]["restored-batches"] == {"words": 1}
    await soon(lambda: not unpacked.exists())
    assert len(temporary_directories(manager)) == 1

    await rescaled(job, details, partitions=3)
    details = await job.runs_attempt(3)
    assert parallelism(details) == [1, 3, 1]
    assert details["attempts"][0]["restored-from"] == "local"
    job.feed(5)
    await job.has_counted()
    checkpoint = await job.checkpoint()
    assert checkpoint["num_subtasks"] == 5
    stateful = next(vertex["id"] for vertex in details["vertices"] if vertex["kind"] == "stateful")
    subtasks = await manager.get(f"/jobs/{job_id}/checkpoints/details/{checkpoint['id']}/subtasks/{stateful}")
    assert [subtask["state_size"] > 0 for subtask in subtasks["subtasks"]] == [True] * 3
    assert verify(checkpoint["external_path"], deep=True).batches == {"words": 5}, "four batches, the rescale, one more"
    statuses = [move["status"] for move in details["status-history"]]
    assert statuses.count("FAILING") == 1, "the change of the parallelism is no failure"


async def test_a_job_survives_a_failed_stop_and_a_stop_during_a_rescale(
    manager: RunningJobManager, words: Words
) -> None:
    retained = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    job = WordCount(manager, words, await submitted(manager, words, retained))
    details = await job.runs_attempt(1)
    job.feed(1)
    await job.has_counted()

    cause = await stop_whose_savepoint_cannot_be_written(job)
    assert "cannot be written" in cause
    job.feed(3)
    await job.has_counted()
    assert [attempt["attempt"] for attempt in (await job.runs_attempt(1))["attempts"]] == [1]

    words.hold()
    job.feed(4)
    await soon(words.is_held, LIMIT_S)
    await rescaled(job, details, partitions=3)
    refused = await manager.savepoint(job.job_id, "stop")
    assert "A change of the parallelism is in progress." in refused["failure-cause"]["stack-trace"]
    words.let_go()
    assert parallelism(await job.runs_attempt(2)) == [1, 3, 1]
    await job.has_counted()
    checkpoints = Path(manager.settings.checkpoint_directory, job.job_id)
    assert list(checkpoints.glob("chk-*/_metadata")), "the rescale's checkpoint is there"

    savepoint = (await manager.savepoint(job.job_id, "stop"))["location"]
    await manager.until(job.job_id, "FINISHED")
    assert verify(savepoint.removeprefix("file:"), deep=True).batches == {"words": words.batches()}
    await soon(lambda: not list(checkpoints.glob("chk-*")), LIMIT_S)


async def stop_whose_savepoint_cannot_be_written(job: WordCount) -> str:
    """Stop the job while a file blocks the savepoint's directory. Return the text of the failure."""
    job.words.hold()
    job.feed(2)
    await soon(job.words.is_held, LIMIT_S)
    trigger = (await job.manager.post(f"/jobs/{job.job_id}/stop"))["request-id"]
    savepoints = Path(job.manager.settings.savepoint_directory)
    [directory] = await soon(lambda: list(savepoints.glob("savepoint-*")), LIMIT_S)
    directory.rmdir()
    directory.write_text("a file where the savepoint should be")
    job.words.let_go()
    result = await job.manager.operation(f"/jobs/{job.job_id}/savepoints/{trigger}")
    return str(result["failure-cause"]["stack-trace"])


def temporary_directories(manager: RunningJobManager) -> list[Path]:
    launcher: Any = manager.launcher
    return list(launcher.temporaries.parent.glob("*"))


async def submitted(manager: RunningJobManager, words: Words, configuration: dict[str, str] = RESTART) -> str:
    jar = await manager.upload((PROGRAMS / "wordcount.py").read_text())
    request = {
        "entryClass": "wordcount.py:wordcount",
        "programArgsList": list(words.arguments),
        "flinkConfiguration": configuration,
        "parallelism": 2,
    }
    return str((await manager.post(f"/jars/{jar}/run", request))["jobid"])


async def killed_in_a_batch(job: WordCount, pid: int) -> None:
    """Kill the job while its sink holds a batch. More input arrives before the next attempt begins a batch."""
    written = {path.name: path.stat().st_mtime_ns for path in job.words.output.glob("*.json")}
    job.words.hold()
    job.feed(3)
    await soon(job.words.is_held, LIMIT_S)
    os.killpg(pid, signal.SIGKILL)
    job.words.let_go()
    job.feed(4)
    await job.has_counted()
    again = {name: (job.words.output / name).stat().st_mtime_ns for name in written}
    assert again == written, "a batch was replayed"
    assert job.words.batches() == 4


async def rescaled(job: WordCount, details: dict[str, Any], *, partitions: int) -> None:
    path = f"/jobs/{job.job_id}/resource-requirements"
    requirements = await job.manager.get(path)
    for vertex in details["vertices"]:
        if vertex["kind"] == "stateful":
            requirements[vertex["id"]]["parallelism"]["upperBound"] = partitions
    assert await asyncio.to_thread(job.manager.client.put, path, requirements) == {}


def parallelism(details: dict[str, Any]) -> list[int]:
    return [vertex["parallelism"] for vertex in details["vertices"]]
