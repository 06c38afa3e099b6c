"""Jobs with different Pythons run at the same time, with other versions of PySpark and pandas, and separate secrets."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import PROGRAMS, Words
from tests.pyspark_environments import PANDAS_VERSION, python_with_pyspark_or_skip

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1800)]

LIMIT_S = 240.0


@pytest.fixture
def launcher_environ() -> dict[str, str]:
    return {**os.environ, "AWS_SECRET_ACCESS_KEY": "the job manager's"}


class Job:
    def __init__(self, manager: RunningJobManager, directory: Path) -> None:
        self.manager = manager
        self.words = Words(directory / "in", directory / "out")
        self.words.input.mkdir(parents=True)
        self.words.output.mkdir()
        self.expected: Counter[str] = Counter()
        self.id = ""

    async def start(self, jar: str, configuration: dict[str, str], parallelism: int = 2, **more: str) -> None:
        body = {"entryClass": "surroundings.py:counts", "programArgsList": list(self.words.arguments),
                "parallelism": parallelism, "flinkConfiguration": configuration, **more}  # fmt: skip
        self.id = str((await self.manager.post(f"/jars/{jar}/run", body))["jobid"])

    async def counts(self, number: int) -> None:
        self.expected.update({f"w{number}": 1, "all": 1})
        self.words.write(f"f{number}", [f"w{number}", "all"])
        await soon(lambda: self.words.counts() == self.expected, LIMIT_S)

    async def killed(self) -> None:
        details = await self.manager.get(f"/jobs/{self.id}")
        os.killpg(details["attempts"][0]["pid"], signal.SIGKILL)

    def surroundings(self) -> dict[str, Any]:
        return dict(json.loads((self.words.output / "surroundings").read_text()))


def settings(secret: str, python: str = "") -> dict[str, str]:
    return {
        "waymark.secret.OWN_TOKEN": secret,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "execution.state-recovery.from-local": "false",
        **({"waymark.python": python} if python else {}),
    }


@pytest.mark.parametrize("pyspark", ["4.2.1", "4.1.4", "4.0.5"])
async def test_two_versions_of_pyspark_run_at_the_same_time(
    manager: RunningJobManager, tmp_path: Path, pyspark: str
) -> None:
    other_python = str(python_with_pyspark_or_skip(pyspark))
    jar = await manager.upload((PROGRAMS / "surroundings.py").read_text(), "surroundings.py")
    usual, other = Job(manager, tmp_path / "usual"), Job(manager, tmp_path / "other")
    await usual.start(jar, settings("hunter2"))
    await other.start(jar, settings("hunter3", other_python))

    for job in (usual, other):
        await job.counts(1)
    assert usual.surroundings() == {
        "pyspark": version("pyspark"), "pandas": version("pandas"), "variables": {"OWN_TOKEN": "hunter2"}
    }  # fmt: skip
    assert other.surroundings() == {"pyspark": pyspark, "pandas": PANDAS_VERSION, "variables": {"OWN_TOKEN": "hunter3"}}

    await manager.checkpoint(other.id)
    await other.killed()
    await other.counts(2)
    stopped = await manager.savepoint(other.id, "stop")
    await other.start(jar, settings("hunter3", other_python), parallelism=3, savepointPath=stopped["location"])
    await manager.until(other.id, "FAILED")
    (failure,) = (await manager.get(f"/jobs/{other.id}/exceptions"))["exceptionHistory"]["entries"]
    assert f"this needs PySpark 4.3 or later, and the job runs with {pyspark}" in failure["message"]

    await other.start(jar, settings("hunter3"), savepointPath=stopped["location"])
    await other.counts(3)
    assert other.surroundings()["pyspark"] == version("pyspark"), "the state goes on in the newer version"
