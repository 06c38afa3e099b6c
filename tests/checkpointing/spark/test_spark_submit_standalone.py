"""A job with keyed state on a real standalone cluster: one master, two workers, an executor that is killed."""

from __future__ import annotations

import os
import random
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.messages import CheckpointKind, DriverState, Heartbeat, VertexKind
from checkpointing.storage import FileCheckpointStorage, verify
from dashboard.stack.ports import any_free
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster
from tests.storage_servers import StorageServer

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[StandaloneCluster]:
    directory = tmp_path_factory.mktemp("standalone")
    started = StandaloneCluster(directory, any_free())
    try:
        started.start(workers=2)
        yield started
    finally:
        started.stop()


def test_a_killed_executor_loses_no_row_and_fails_no_attempt(
    cluster: StandaloneCluster, job_manager: Any, drivers: Any, words: Any, eventually: Any
) -> None:
    expected: Counter[str] = Counter()

    def feed(*seeds: int) -> None:
        for seed in seeds:
            chance = random.Random(seed)
            some = [f"w{chance.randrange(40)}" for _ in range(300)]
            expected.update(some)
            words.write(f"f{seed}", some)

    secret = {"spark.hadoop.fs.s3a.secret.key": "not-for-ps"}
    configuration = {"spark.master": cluster.master, "spark.executor.memory": "500m", **secret}
    driver = drivers.start(job_manager, "wordcount:keyed", words.arguments, configuration=configuration)
    job_manager.await_state(1, DriverState.RUNNING)
    feed(1, 2)
    eventually("two batches", lambda: words.counts() == expected)
    executors = eventually("one on each worker", lambda: len(found := cluster.executors()) == 2 and found)
    assert cluster.listening() <= _LOOPBACK
    assert _command_lines_with("not-for-ps") == [], "settings may be secrets: none is in a command line"

    checkpoint = job_manager.complete(1)
    stateful = next(o for o in checkpoint.operators if o.kind is VertexKind.STATEFUL)
    assert sum(s.metrics.processed_records for s in stateful.subtasks) > 0, "executors' figures reach the driver"

    words.hold()
    feed(3)
    eventually("a batch in flight", words.is_held)
    os.kill(executors[0], signal.SIGKILL)
    words.let_go()
    feed(4, 5)
    eventually("every word once", lambda: words.counts() == expected)
    eventually("another executor", lambda: len(set(cluster.executors()) - {executors[0]}) == 2)
    assert driver.process.poll() is None, "the driver went on"
    assert job_manager.complete(2).batches == {"words": 4}


def test_the_executors_upload_large_state_to_remote_storage(
    cluster: StandaloneCluster,
    job_manager: Any,
    drivers: Any,
    words: Any,
    eventually: Any,
    s3: StorageServer,
    admitted: Callable[[StorageServer], None],
) -> None:
    admitted(s3)
    root = f"{s3.root}/{uuid.uuid4().hex}"
    job_manager.storage = FileCheckpointStorage(f"{root}/checkpoints", job_manager.job_id)
    job_manager.savepoints = f"{root}/savepoints"
    some = [uuid.UUID(int=random.Random(number).getrandbits(128)).hex for number in range(600)]
    words.write("f1", some)
    configuration = {
        "spark.master": cluster.master,
        "spark.executor.memory": "500m",
        "waymark.executor-uploads.min-size": "10 kb",
        **{f"spark.executorEnv.{name}": value for name, value in s3.environment.items()},
    }
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments, configuration=configuration)
    job_manager.await_state(1, DriverState.RUNNING)
    eventually("a batch", lambda: len(words.counts()) == 600)
    eventually("both executors", lambda: len(job_manager.heard(Heartbeat)[-1].executors) == 2)

    checkpoint = job_manager.complete(1)
    assert "by 2 of the executors' processes" in driver.log, driver.log[-3000:]
    assert verify(checkpoint.location, deep=True) == checkpoint
    shared = [file for o in checkpoint.operators for s in o.subtasks for file in s.files if file.shared]
    assert shared, "state that later checkpoints need not move again"
    before = driver.log.count("executors' processes")
    again = job_manager.complete(2)
    assert driver.log.count("executors' processes") == before, "what is left is too little for them"
    assert verify(again.location, deep=True) == again
    savepoint = job_manager.complete(3, CheckpointKind.SAVEPOINT)
    assert driver.log.count("executors' processes") == before + 1, "a savepoint shares no files"
    assert verify(savepoint.location, deep=True) == savepoint
    assert "the driver does it" not in driver.log


def _command_lines_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found
