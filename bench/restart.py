"""From SIGKILL of a driver to the first new batch's commit, against a bare PySpark script in a shell loop.

The same query and session settings four times, side by side and all but idle: as a bare script; as a job whose state
comes back from its checkpoint; as one that goes on in what the dead driver left (local recovery, the default); and so
with a warm spare. The job managers have a ZooKeeper, as `manage.py up` runs them. They are killed in turn, several
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
FROM_CHECKPOINT = {**CHECKPOINTS, "execution.state-recovery.from-local": "false"}
NAMES = ("bare", "job", "local", "warm")


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        server = ZooKeeperServer(directory / "zookeeper", any_free(), find_java(os.environ, directory / "java").home)
        with running(server, log=directory / "zookeeper.log"):
            times = _rounds(directory, server.address)
    bare, job, local, warm = (statistics.median(times[name]) for name in NAMES)
    return [
        Figure("restart of a bare script, median", bare, "s"),
        Figure("restart of a job from its checkpoint, median", job, "s"),
        Figure("restart of a job with local recovery, median", local, "s"),
        Figure("restart of a job with a warm spare, median", warm, "s"),
        Figure("job from its checkpoint against bare script", job / bare, "×", goal=1.1),
        Figure("job with local recovery against bare script", local / bare, "×", goal=1.1),
        Figure("job with a warm spare against bare script", warm / bare, "×", goal=0.6),
    ]


def _rounds(directory: Path, zookeeper: str) -> dict[str, list[float]]:
    for name in NAMES:
        (directory / name).mkdir()
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:

        def started(each: T) -> T:
            stack.callback(each.stop)
            return each

        bare = started(BareScript(directory / "bare", ARGUMENTS))
        job = started(ManagedJob(directory / "job", ARGUMENTS, FROM_CHECKPOINT, zookeeper=zookeeper))
        local = started(ManagedJob(directory / "local", ARGUMENTS, CHECKPOINTS, zookeeper=zookeeper))
        warm = started(ManagedJob(directory / "warm", ARGUMENTS, CHECKPOINTS, spares=1, zookeeper=zookeeper))
        for _ in range(ROUNDS):
            wait_for("batches of the bare script", lambda: len(bare.commits()) > 2)
            for each in (job, local, warm):
                done = each.completed()
                wait_for("a checkpoint", lambda each=each, done=done: each.completed() > done)
            wait_for("a warm spare", warm.has_spare)
            for name, each in zip(NAMES, (bare, job, local, warm), strict=True):
                times[name].append(each.restarted())
                print(f"{name}: {times[name][-1]:.1f} s", file=sys.stderr)
    return times
