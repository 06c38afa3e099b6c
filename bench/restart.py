"""From SIGKILL of a driver to the first new batch's commit, against a bare PySpark script in a shell loop.

The same query and session settings three times, side by side and all but idle: as a bare script, as a job, and as a job
with a warm spare; the job managers with a ZooKeeper, as `manage.py up` runs them. They are killed in turn, several
rounds; ratios are of medians. The bare script has no event log.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TypeVar

from bench.counting_jobs import BareScript, ManagedJob, wait_for
from bench.figures import Figure
from checkpointing.java import find_java
from dashboard.stack.ports import any_free
from dashboard.stack.process import running
from dashboard.stack.zookeeper import ZooKeeperServer

T = TypeVar("T", BareScript, ManagedJob)

ROUNDS = 5
ARGUMENTS = {"rows": "1000", "keys": "100", "every": "3 seconds"}
CHECKPOINTS = {"execution.checkpointing.interval": "3 s"}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        server = ZooKeeperServer(directory / "zookeeper", any_free(), find_java(os.environ, directory / "java").home)
        with running(server, log=directory / "zookeeper.log"):
            times = _rounds(directory, server.address)
    bare, job, warm = (statistics.median(times[name]) for name in ("bare", "job", "warm"))
    return [
        Figure("restart of a bare script, median", bare, "s"),
        Figure("restart of a job, median", job, "s"),
        Figure("restart of a job with a warm spare, median", warm, "s"),
        Figure("job against bare script", job / bare, "×", goal=1.1),
        Figure("job with a warm spare against bare script", warm / bare, "×", goal=0.6),
    ]


def _rounds(directory: Path, zookeeper: str) -> dict[str, list[float]]:
    for name in ("bare", "job", "warm"):
        (directory / name).mkdir()
    times: dict[str, list[float]] = {"bare": [], "job": [], "warm": []}
    with contextlib.ExitStack() as stack:

        def started(each: T) -> T:
            stack.callback(each.stop)
            return each

        bare = started(BareScript(directory / "bare", ARGUMENTS))
        job = started(ManagedJob(directory / "job", ARGUMENTS, CHECKPOINTS, zookeeper=zookeeper))
        warm = started(ManagedJob(directory / "warm", ARGUMENTS, CHECKPOINTS, spares=1, zookeeper=zookeeper))
        for _ in range(ROUNDS):
            wait_for("batches of the bare script", lambda: len(bare.commits()) > 2)
            for each in (job, warm):
                done = each.completed()
                wait_for("a checkpoint", lambda each=each, done=done: each.completed() > done)
            wait_for("a warm spare", warm.has_spare)
            for name, each in (("bare", bare), ("job", job), ("warm", warm)):
                times[name].append(each.restarted())
                print(f"{name}: {times[name][-1]:.1f} s", file=sys.stderr)
    return times
