"""A real driver in a simulated pod. It loads its program over HTTP and stores snapshots in S3; the pod is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.kubernetes.launcher import KubernetesLauncher, PodDefaults
from tests.checkpointing.jobs.played_kubernetes import NAMESPACE, PlayedKubernetes, real_process
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import PROGRAMS, REAL_DRIVER_S, Words
from tests.storage_servers import StorageServer

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S = 180.0
SITE = Site(storage_is_shared=False, address="http://jobs.internal:8081")
CONFIGURATION = {
    "spark.kubernetes.container.image": "registry/streams:1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "10 ms",
    "waymark.secret.PASSWORD": "for the program only",
}
# The program prints the length of its secret, so that the test can check it.
PROGRAM = "import os\nprint('password', len(os.environ['PASSWORD']), os.getcwd(), flush=True)\n"


@pytest.fixture
def kubernetes(tmp_path: Path) -> Any:
    with PlayedKubernetes(tmp_path, real_process).serving() as serving:
        yield serving


@pytest_asyncio.fixture
async def manager(
    tmp_path: Path,
    java_home: Path,
    kubernetes: PlayedKubernetes,
    s3: StorageServer,
    admitted: Callable[[StorageServer], None],
) -> AsyncIterator[RunningJobManager]:
    admitted(s3)
    checkpoints, savepoints = f"{s3.root}/pods/checkpoints", f"{s3.root}/pods/savepoints"
    defaults = PodDefaults(NAMESPACE, "jobs", 60.0, checkpoints, savepoints, root=str(tmp_path / "pods"))
    pods: Any = KubernetesLauncher(kubernetes.api(), defaults, SITE, os.environ, ["AWS_*"], list_interval_s=0.2)
    environ = {
        "WAYMARK_CHECKPOINT_DIR": checkpoints,
        "WAYMARK_SAVEPOINT_DIR": savepoints,
        "WAYMARK_JOBMANAGER_TOKEN": "of the job manager",
    }
    running = RunningJobManager(tmp_path, pods, environ, limit_s=REAL_DRIVER_S)
    await running.start()
    yield running
    await running.shut_down()


async def test_a_killed_driver_in_a_pod_continues_from_its_checkpoint_in_s3(
    manager: RunningJobManager, kubernetes: PlayedKubernetes, words: Words, tmp_path: Path
) -> None:
    jar = await manager.upload(PROGRAM + (PROGRAMS / "wordcount.py").read_text())
    request = {
        "entryClass": "wordcount.py:wordcount",
        "programArgsList": list(words.arguments),
        "flinkConfiguration": CONFIGURATION,
        "parallelism": 2,
    }
    job_id = str((await manager.post(f"/jars/{jar}/run", request))["jobid"])
    await attempt_runs(manager, job_id, 1)
    words.write("f1", ["a", "b"])
    await soon(lambda: words.counts() == {"a": 1, "b": 1}, LIMIT_S)
    assert await manager.checkpoint(job_id) == 1
    words.write("f2", ["a"])
    await soon(lambda: words.counts() == {"a": 2, "b": 1}, LIMIT_S)

    os.killpg(kubernetes.container().process.pid, signal.SIGKILL)
    details = await attempt_runs(manager, job_id, 2)
    assert details["attempts"][0]["restored-path"].startswith("s3://")
    words.write("f3", ["c"])
    await soon(lambda: words.counts() == {"a": 2, "b": 1, "c": 1}, LIMIT_S)

    entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert f"waymark-{job_id}-1 of the driver ended with exit code 137" in entry["stacktrace"]
    logs = [each["name"] for each in (await manager.get(f"/jobs/{job_id}/logs"))["logs"]]
    assert logs == ["driver-2.log", "driver-1.log"]
    [first] = (tmp_path / "state" / "jobs" / job_id).glob("attempt-1/driver.log")
    text = first.read_text()
    assert f"password {len(CONFIGURATION['waymark.secret.PASSWORD'])} {tmp_path / 'pods'}" in text
    assert CONFIGURATION["waymark.secret.PASSWORD"] not in text + str(kubernetes.created)

    await manager.cancel(job_id)
    await soon(lambda: not kubernetes.pods, LIMIT_S)
    assert [pod["metadata"]["labels"]["waymark/attempt"] for pod in kubernetes.created] == ["1", "2"]


async def attempt_runs(manager: RunningJobManager, job_id: str, number: int) -> dict[str, Any]:
    async def running() -> dict[str, Any] | None:
        found = await manager.get(f"/jobs/{job_id}")
        return found if found["state"] == "RUNNING" and found["attempts"][0]["attempt"] == number else None

    return dict(await soon(running, LIMIT_S))
