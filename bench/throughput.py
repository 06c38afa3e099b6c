"""Rows per second of a stateful job with checkpoints every 5 s, compared with the same query without Waymark.

Both run at full speed, but never at the same time: SIGSTOP pauses the processes of one while the other is measured.
Measurements alternate, and the ratio is of medians. The query without Waymark is a bare script with the same session
settings and no event log.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.counting_jobs import BareScript, ManagedJob, wait_for
from bench.figures import Figure

WINDOWS = 7
WINDOW_S = 15.0
SETTLE_S = 2.0
WARM_UP_BATCHES = 10
ROWS = 200_000
ARGUMENTS = {"rows": str(ROWS), "keys": "50000", "every": "0 seconds"}
CHECKPOINTS = {"execution.checkpointing.interval": "5 s"}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as directory:
        bare, job = _windows(Path(directory))
    without, with_waymark = statistics.median(bare), statistics.median(job)
    return [
        Figure("throughput without Waymark", without, "rows/s"),
        Figure("throughput, checkpoint every 5 s", with_waymark, "rows/s"),
        Figure("throughput against plain Spark", with_waymark / without, "×", goal=0.99, at_most=False),
    ]


def _windows(directory: Path) -> tuple[list[float], list[float]]:
    for name in ("bare", "job"):
        (directory / name).mkdir()
    bare = BareScript(directory / "bare", ARGUMENTS)
    job = ManagedJob(directory / "job", ARGUMENTS, CHECKPOINTS)
    rates: tuple[list[float], list[float]] = ([], [])
    try:
        for each in (bare, job):
            wait_for("batches", lambda each=each: len(each.commits()) > WARM_UP_BATCHES)
        _signal(bare, signal.SIGSTOP)
        _signal(job, signal.SIGSTOP)
        for number in range(2 * WINDOWS):
            turn = (number + number // 2) % 2  # a b b a a b b a, so that neither always follows the other
            rates[turn].append(_window((bare, job)[turn]))
            print(f"{('bare', 'job')[turn]}: {rates[turn][-1]:,.0f} rows/s", file=sys.stderr)
    finally:
        for each in (bare, job):
            _signal(each, signal.SIGCONT)
            each.stop()
    return rates


def _window(job: BareScript | ManagedJob) -> float:
    """Return rows per second between the first and the last commit in the window."""
    _signal(job, signal.SIGCONT)
    time.sleep(SETTLE_S)
    began = time.time()
    time.sleep(WINDOW_S)
    _signal(job, signal.SIGSTOP)
    within = sorted((batch, at) for batch, at in job.commits().items() if at > began)
    (first, first_at), (last, last_at) = within[0], within[-1]
    return ROWS * (last - first) / (last_at - first_at)


def _signal(job: BareScript | ManagedJob, number: signal.Signals) -> None:
    for process in job.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
