"""The time from SIGKILL of a driver to the next commit of a batch, compared with a PySpark script in a shell loop.

Four instances of the same query run at the same time, almost idle and with the same session settings: a bare script; a
job that restores its state from a checkpoint; a job that continues with the files of the dead driver (local recovery,
the default); and such a job with a spare driver. The job managers use a ZooKeeper, as with `manage.py up`. The bare
script has no event log.

They are killed in turn, each at every position in the order. The next one is killed only after the restarted ones have
run some batches: a new JVM compiles on the CPUs that the next start needs. Ratios are of medians.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from bench.counting_jobs import BareScript, ManagedJob, wait_for
from bench.figures import Figure
from checkpointing.java import find_java
from dashboard.stack.ports import any_free
from dashboard.stack.process import running
from dashboard.stack.zookeeper import ZooKeeperServer

T = TypeVar("T", BareScript, ManagedJob)

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "4"))
SETTLED_BATCHES = 4
ARGUMENTS = {"rows": "1000", "keys": "100", "every": "3 seconds"}
CHECKPOINTS = {"execution.checkpointing.interval": "3 s"}
FROM_CHECKPOINT = {**CHECKPOINTS, "execution.state-recovery.from-local": "false"}
NAMES = ("bare", "job", "local", "warm")
AGAINST_SCRIPT = "SIGKILL of the driver to the first new commit, against a script in a shell loop"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        server = ZooKeeperServer(directory / "zookeeper", any_free(), find_java(os.environ, directory / "java").home)
        with running(server, log=directory / "zookeeper.log"):
            times = _rounds(directory, server.address)
    bare, job, local, warm = (statistics.median(times[name]) for name in NAMES)
    return [
        Figure("restart", bare, "s", case="script"),
        Figure("restart", job, "s", case="checkpoint"),
        Figure("restart", local, "s", case="local recovery"),
        Figure("restart", warm, "s", case="spare"),
        Figure(AGAINST_SCRIPT, job / bare, "×", goal=1.1, case="checkpoint"),
        Figure(AGAINST_SCRIPT, local / bare, "×", goal=1.1, case="local recovery"),
        Figure(AGAINST_SCRIPT, warm / bare, "×", goal=0.6, case="spare"),
    ]


def _rounds(directory: Path, zookeeper: str) -> dict[str, list[float]]:
    for name in NAMES:
        (directory / name).mkdir()
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:

        def started(each: T) -> T:
            stack.callback(each.stop)
            return each

        job = started(ManagedJob(directory / "job", ARGUMENTS, FROM_CHECKPOINT, zookeeper=zookeeper))
        bare = started(BareScript(directory / "bare", ARGUMENTS))
        local = started(ManagedJob(directory / "local", ARGUMENTS, CHECKPOINTS, zookeeper=zookeeper))
        warm = started(ManagedJob(directory / "warm", ARGUMENTS, CHECKPOINTS, spares=1, zookeeper=zookeeper))
        each_by_name = dict(zip(NAMES, (bare, job, local, warm), strict=True))
        for round_ in range(ROUNDS):
            for name in (*NAMES[round_ % 4 :], *NAMES[: round_ % 4]):
                _settle(each_by_name.values())
                wait_for("a warm spare", warm.has_spare)
                times[name].append(each_by_name[name].restarted())
                print(f"{name}: {times[name][-1]:.1f} s", file=sys.stderr)
    return times


def _settle(all_four: Iterable[BareScript | ManagedJob]) -> None:
    """Wait until each job has completed another checkpoint, and then until all have committed some batches."""
    running = list(all_four)
    done = [(each, each.completed()) for each in running if isinstance(each, ManagedJob)]
    for job, before in done:
        wait_for("a checkpoint", lambda job=job, before=before: job.completed() > before)
    goals = [(each, max(each.commits(), default=-1) + SETTLED_BATCHES) for each in running]
    for each, goal in goals:
        wait_for("some batches", lambda each=each, goal=goal: max(each.commits(), default=-1) >= goal)
