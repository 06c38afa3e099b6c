"""The machine of leader and driver is lost. The next job manager continues from the driver's files, with real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.local_recovery import FROM_SHARED
from checkpointing.rest.client import JobManagerClient
from tests.checkpointing.jobs.cluster import leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.jobs.test_local_recovery import came_from_another_boot
from tests.checkpointing.spark.conftest import REAL_DRIVER_S, ROOT, Words

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.timeout(900)]

LIMIT_S = 180.0
# The sink skips batch numbers that it knows, and the test can hold a batch that has not begun yet. Each batch reads all
# available files: after a restart from the checkpoint, a batch number that the sink knows would have other rows.
PROGRAM = """
import json, os, time
from pathlib import Path

def rows(spark, args):
    output = Path(args["output"])

    def write(frame, batch):
        held = (output / "hold").exists()
        target = output / f"{batch:05}.json"
        if not target.exists():
            partial = output / f".{batch}.{os.getpid()}"
            partial.write_text(json.dumps([row["value"] for row in frame.collect()]))
            partial.rename(target)
        while held and (output / "hold").exists():
            (output / "held").touch()
            time.sleep(0.01)

    lines = spark.readStream.format("text").load(args["input"])
    return lines.writeStream.queryName("rows").foreachBatch(write).trigger(processingTime="0 seconds")
"""


RUN = (
    "import asyncio, os; from checkpointing.main import run; "
    "from checkpointing.jobs.settings import JobManagerSettings; "
    "asyncio.run(run(JobManagerSettings.from_environ(dict(os.environ)), dict(os.environ), "
    "lambda text: print(text, flush=True)))"
)


@contextmanager
def leader(manager: RunningJobManager, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a leading job manager in a separate process, and connect `manager.client` to it."""
    state = str(manager.settings.state_directory)
    own = {"WAYMARK_JOBMANAGER_PORT": "0", "WAYMARK_JOBMANAGER_STATE": state, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN], env={**os.environ, **environ, **own}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        manager.client = JobManagerClient(address, manager.settings.token)
        yield process
    finally:
        process.kill()
        process.communicate()


def written(words: Words) -> Counter[str]:
    return Counter(row for file in words.output.glob("*.json") for row in json.loads(file.read_text()))


async def attempt_of(manager: RunningJobManager, job_id: str, number: int) -> dict[str, Any]:
    async def running() -> dict[str, Any] | None:
        found = await manager.get(f"/jobs/{job_id}")
        newest = found["attempts"][0] if found["attempts"] else {"attempt": 0}
        return newest if found["state"] == "RUNNING" and newest["attempt"] == number else None

    return dict(await soon(running, LIMIT_S))


async def submitted(manager: RunningJobManager, words: Words) -> str:
    jar = await manager.upload(PROGRAM, "rows.py")
    request = {
        "entryClass": "rows.py:rows",
        "programArgsList": list(words.arguments),
        "flinkConfiguration": {"restart-strategy.type": "fixed-delay", FROM_SHARED: "true"},
    }
    return str((await manager.post(f"/jars/{jar}/run", request))["jobid"])


def lose_the_machine(first: RunningJobManager, leader: subprocess.Popen[str], job_id: str, pid: int) -> None:
    """Kill leader and driver, and change their record to another host and boot than the next job manager's."""
    leader.kill()
    leader.wait()
    os.killpg(pid, signal.SIGKILL)
    directory = JobDirectory(first.settings.state_directory / "jobs", job_id)
    record = directory.read_record()
    assert record is not None
    directory.write_record(replace(record, host="lost.example"))
    came_from_another_boot(Path(record.work_directory))


async def test_an_idempotent_sink_loses_no_row_and_doubles_none(
    tmp_path: Path, zookeeper_hosts: str, java_home: Path, words: Words
) -> None:
    environ = {
        "ZOOKEEPER_HOSTS": zookeeper_hosts,
        "WAYMARK_ZOOKEEPER_ROOT": f"/test-{uuid.uuid4().hex}",
        "WAYMARK_RECONCILE_WINDOW": "1",
        "JAVA_HOME": str(java_home),
    }
    launcher: Any = LocalDriverLauncher(os.environ, lambda: java_home, tmp_path / "state")
    first, second = (RunningJobManager(tmp_path, launcher, environ, limit_s=REAL_DRIVER_S) for _ in range(2))
    expected: Counter[str] = Counter()

    def feed(number: int) -> None:
        rows = [f"row {number}-{each}" for each in range(10)]
        expected.update(rows)
        words.write(f"f{number}", rows)

    with leader(first, environ) as process:
        await leads(first)
        job_id = await submitted(first, words)
        pid = (await attempt_of(first, job_id, 1))["pid"]
        feed(0)
        await soon(lambda: written(words) == expected, LIMIT_S)
        await first.checkpoint(job_id)
        for number in (1, 2):
            feed(number)
            await soon(lambda: written(words) == expected, LIMIT_S)
        words.hold()
        feed(3)
        await soon(words.is_held, LIMIT_S)
        await second.start()
        # The batch is in the sink, but not committed.
        lose_the_machine(first, process, job_id, pid)
    try:
        words.let_go()
        feed(4)
        await leads(second)
        attempt = await attempt_of(second, job_id, 2)
        assert (attempt["restored-from"], attempt["restored-batches"]) == ("local", {"rows": 2})
        feed(5)
        await soon(lambda: sum(written(words).values()) >= sum(expected.values()), LIMIT_S)
        assert written(words) == expected
    finally:
        await second.shut_down()
