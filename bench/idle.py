"""The cost of the running demo: CPU cores and memory of all its processes.

The benchmark starts `manage.py up --demo` in an empty directory, and waits until both jobs have completed checkpoints
and the start-up is over. Then it measures CPU time and proportional memory of all processes for two minutes. It also
measures the share of the job that creates the roll-ups of the history. Goal: on 2 cores and 8 GB, half a core stays
idle.
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
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.figures import Figure

SETTLE_S = 60.0
WINDOW_S = 120.0
START_LIMIT_S = 300.0
PIPELINE = "Waymark history"


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
            _wait_for("the demo's jobs have completed checkpoints", lambda: _jobs_with_checkpoints(environ) >= 2)
            ready_s = time.monotonic() - started
            _wait_for("roll-ups are made", lambda: _job(environ, PIPELINE).get("state") == "RUNNING")
            time.sleep(SETTLE_S)
            (cores, memory), (pipeline, pipeline_memory) = _cost(stack.pid, _driver_of(environ, PIPELINE))
        finally:
            stack.send_signal(signal.SIGTERM)
            stack.wait(120)
    return [
        Figure("start to first checkpoints", ready_s, "s", goal=300),
        Figure("cores of the demo", cores, "", goal=1.5),
        Figure("memory", memory / 2**30, "GiB", goal=8),
        Figure("core of *Waymark history*", pipeline * 100, "%", goal=5),
        Figure("its memory", pipeline_memory / 2**20, "MiB"),
    ]


def _wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {START_LIMIT_S:.0f} s: {what}")
        time.sleep(1)


def _jobs_with_checkpoints(environ: dict[str, str]) -> int:
    try:
        jobs = _get(environ, "/jobs/overview")["jobs"]
        return sum(_get(environ, f"/jobs/{job['jid']}/checkpoints")["counts"]["completed"] > 0 for job in jobs)
    except (OSError, ValueError, KeyError):
        return 0


def _job_manager(environ: dict[str, str]) -> str:
    status = subprocess.run(
        [sys.executable, "manage.py", "status", "--json"], env=environ, capture_output=True, text=True, check=False
    )
    parts = {part["name"]: part for part in json.loads(status.stdout)["parts"]}
    return parts["jobmanager"]["address"]


def _job(environ: dict[str, str], name: str) -> dict:
    try:
        jobs = _get(environ, "/jobs/overview")["jobs"]
    except (OSError, ValueError, KeyError):
        return {}
    return next((job for job in jobs if job["name"] == name), {})


def _driver_of(environ: dict[str, str], name: str) -> int:
    job = _job(environ, name)["jid"]
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if "checkpointing.spark.driver" in command and f"/jobs/{job}/" in command:
            return int(process.pid)
    raise LookupError(f"{name} has no driver")


def _get(environ: dict[str, str], path: str) -> dict:
    token = (Path(environ["WAYMARK_VAR"]) / "jobmanager-token").read_text()
    request = urllib.request.Request(_job_manager(environ) + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def _cost(*roots: int) -> list[tuple[float, int]]:
    """Return the used cores in the window and the bytes of memory, for each root with its descendants."""
    before = [_cpu_seconds(root) for root in roots]
    started = time.monotonic()
    time.sleep(WINDOW_S)
    after = [_cpu_seconds(root) for root in roots]
    elapsed = time.monotonic() - started
    return [
        (_used(*each) / elapsed, sum(process.memory_full_info().pss for process in _tree(root)))
        for root, each in zip(roots, zip(before, after, strict=True), strict=True)
    ]


def _used(before: dict[int, float], after: dict[int, float]) -> float:
    """Return the CPU seconds between two measurements. Processes that ended in between are not counted."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def _cpu_seconds(root: int) -> dict[int, float]:
    return {process.pid: sum(process.cpu_times()[:2]) for process in _tree(root)}


def _tree(root: int) -> list[psutil.Process]:
    """Return a process and all its descendants. They include drivers, which are children of the job manager."""
    parent = psutil.Process(root)
    return [parent, *parent.children(recursive=True)]
