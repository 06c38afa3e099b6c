"""A stateful job on a real standalone cluster: one master, two workers, an executor that is killed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.messages import DriverState, VertexKind
from dashboard.stack.ports import any_free
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path) -> Iterator[StandaloneCluster]:
    directory = tmp_path / "standalone"
    directory.mkdir()
    started = StandaloneCluster(directory, any_free())
    try:
        started.start(workers=2)
        yield started
    finally:
        started.stop()


def test_an_executor_that_is_killed_costs_the_job_no_word_and_no_attempt(
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
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments, configuration=configuration)
    job_manager.await_state(1, DriverState.RUNNING)
    feed(1, 2)
    eventually("two batches", lambda: words.counts() == expected)
    executors = cluster.executors()
    assert len(executors) == 2, "one on each worker"
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
