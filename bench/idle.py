"""What the demo costs once it runs: cores and memory of all its processes.

Starts `manage.py up --demo` on an empty directory, waits until both jobs have completed checkpoints, lets the start-up
settle, then reads the processes' CPU time and proportional memory over a minute. Goal: on 2 cores and 8 GB half a core
stays idle.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from bench.figures import Figure

SETTLE_S = 60.0
WINDOW_S = 60.0
START_LIMIT_S = 300.0


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        environ = {**os.environ, "WAYMARK_VAR": f"{directory}/var"}
        started = time.monotonic()
        stack = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--demo"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for_checkpoints(environ)
            ready_s = time.monotonic() - started
            time.sleep(SETTLE_S)
            cores, memory = _cost(stack.pid)
        finally:
            stack.send_signal(signal.SIGTERM)
            stack.wait(120)
    return [
        Figure("empty directory to both jobs' first completed checkpoint", ready_s, "s", goal=300),
        Figure("cores used by the running demo", cores, "cores", goal=1.5),
        Figure("memory (proportional set size)", memory / 2**30, "GiB", goal=8),
    ]


def _wait_for_checkpoints(environ: dict[str, str]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if _jobs_with_checkpoints(environ) >= 2:
            return
        time.sleep(1)
    raise TimeoutError(f"the demo's jobs had no completed checkpoints after {START_LIMIT_S:.0f} s")


def _jobs_with_checkpoints(environ: dict[str, str]) -> int:
    status = subprocess.run(
        [sys.executable, "manage.py", "status", "--json"], env=environ, capture_output=True, text=True, check=False
    )
    try:
        parts = {part["name"]: part for part in json.loads(status.stdout)["parts"]}
        url = parts["jobmanager"]["address"]
        jobs = _get(f"{url}/jobs/overview")["jobs"]
        return sum(_get(f"{url}/jobs/{job['jid']}/checkpoints")["counts"]["completed"] > 0 for job in jobs)
    except (OSError, ValueError, KeyError):
        return 0


def _get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def _cost(root: int) -> tuple[float, int]:
    """Cores in use over the window and bytes of memory, of `root` and all below it (drivers included)."""
    before = _cpu_seconds(root)
    started = time.monotonic()
    time.sleep(WINDOW_S)
    after = _cpu_seconds(root)
    elapsed = time.monotonic() - started
    # A process that ended within the window took its time with it; its parent's record of it is in children_*.
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    memory = sum(process.memory_full_info().pss for process in _tree(root))
    return used / elapsed, memory


def _cpu_seconds(root: int) -> dict[int, float]:
    return {process.pid: sum(process.cpu_times()[:2]) for process in _tree(root)}


def _tree(root: int) -> list[psutil.Process]:
    """All processes of the stack: drivers run in sessions of their own but stay children of the job manager."""
    parent = psutil.Process(root)
    return [parent, *parent.children(recursive=True)]
