"""Batches of a plain PySpark program with the agent, while Waymark answers, hangs, is dead or sends garbage.

One query runs 1,000 small batches with each of these servers and 2,000 without an agent, in turns. A batch lasts until
the next one starts. The noise is the slowest batch without an agent. Chance alone makes one of 2,000 others slower.
Half of the batches without an agent are a control group: so many are slower than the slowest one of the other half.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from bench.figures import BenchmarkFailed, Figure
from checkpointing.java import find_java
from tests.agent.servers import Waymark, free_address, garbage, never_answers, raw_server
from tests.agent.sessions import AGENT
from tests.pyspark_environments import python_with_pyspark_or_skip

VERSIONS = ("3.5.9", version("pyspark"))
TURNS, BATCHES = 5, 200
PROGRAM = Path(__file__).parent / "programs" / "agent_batches.py"
WITHOUT, CONTROL = "no agent", "no agent, control"
LIMIT_S = 3_600
MEMORY = "/dev/shm"


def measure() -> list[Figure]:
    return [figure for each in VERSIONS for figure in _figures(each, _measured(each))]


def _measured(pyspark: str) -> dict[str, list[float]]:
    """Return the milliseconds of each batch, by server."""
    python = sys.executable if pyspark == version("pyspark") else str(python_with_pyspark_or_skip(pyspark))
    with ExitStack() as stack:
        # In memory, so that a slow disk does not hide delays.
        memory = MEMORY if Path(MEMORY).is_dir() else None
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="waymark-bench-", dir=memory))
        waymark = stack.enter_context(Waymark().running())
        urls = {
            WITHOUT: None,
            CONTROL: None,
            "answers": waymark.url,
            "hangs": stack.enter_context(raw_server(never_answers)),
            "is dead": free_address(),
            "sends garbage": stack.enter_context(raw_server(garbage)),
        }
        java = find_java(os.environ, Path(directory) / "java").home
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
        environment |= {"JAVA_HOME": str(java), "PYTHONPATH": str(AGENT.parent), "TMPDIR": directory}
        task = json.dumps({"urls": urls, "turns": TURNS, "batches": BATCHES})
        command = [python, str(PROGRAM), task]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise BenchmarkFailed(f"the program with PySpark {pyspark} ended: {done.stderr[-2000:]}")
    if not waymark.stored:
        raise BenchmarkFailed("the agent has reported no batch")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _figures(pyspark: str, measured: dict[str, list[float]]) -> list[Figure]:
    without = [*measured.pop(WITHOUT), *measured[CONTROL]]
    noise = max(without)
    control = measured.pop(CONTROL)
    median = statistics.median(without)
    return [
        Figure(f"PySpark {pyspark}, batch without an agent, median", median, "ms"),
        Figure("its slowest of 2,000 (the noise)", noise, "ms"),
        Figure("control group slower than the other half", _later(control, max(without[: len(control)])), "batches"),
        *(
            Figure(f"PySpark {pyspark}, slower batches, Waymark", _later(ms, noise), "", goal=0, case=name)
            for name, ms in measured.items()
        ),
        *(
            Figure("median batch against none while Waymark", statistics.median(ms) / median, "×", case=name)
            for name, ms in measured.items()
        ),
    ]


def _later(milliseconds: list[float], limit: float) -> int:
    return sum(each > limit for each in milliseconds)
