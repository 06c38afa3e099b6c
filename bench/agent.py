"""Batches of a plain PySpark program with the agent, while Waymark answers, hangs, is dead or sends garbage.

One query runs 1,000 small batches with each of these servers, 2,000 with a listener that does nothing, and 1,000
without any, in turns. A batch lasts until the next one starts. PySpark itself spends time on each event of a listener
in Python. So the noise is the slowest of the 2,000 batches. Chance alone makes one of 2,000 others slower. Half of the
2,000 are a control group: so many of them are slower than the slowest one of the other half.
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

from bench.figures import BenchmarkFailed, Figure, print_figures
from checkpointing.java import find_java
from tests.agent.servers import Waymark, free_address, garbage, never_answers, raw_server
from tests.agent.sessions import AGENT
from tests.pyspark_environments import python_with_pyspark_or_skip

VERSIONS = ("3.5.9", version("pyspark"))
TURNS, BATCHES = 5, 200
PROGRAM = Path(__file__).parent / "programs" / "agent_batches.py"
WITHOUT, EMPTY, CONTROL = "no listener", "a listener that does nothing", "control"
LIMIT_S = 3_600
MEMORY = "/dev/shm"


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for pyspark in VERSIONS:
        of_version = _figures(pyspark, _measured(pyspark))
        # Ten minutes lie between the versions: what the first one gave must not wait for the second.
        print_figures(f"PySpark {pyspark}", of_version)
        figures += of_version
    return figures


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
            EMPTY: "",
            CONTROL: "",
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
    without, control = statistics.median(measured.pop(WITHOUT)), measured.pop(CONTROL)
    other_half = measured.pop(EMPTY)
    empty = [*other_half, *control]
    noise, median = max(empty), statistics.median(empty)
    return [
        Figure(f"PySpark {pyspark}, batch without a listener, median", without, "ms"),
        Figure("with a listener that does nothing, median", median, "ms"),
        Figure("its slowest of 2,000 (the noise)", noise, "ms"),
        Figure("control group slower than the other half", _later(control, max(other_half)), "batches"),
        *(
            Figure(f"PySpark {pyspark}, slower batches of 1,000, Waymark", _later(ms, noise), "", goal=0, case=name)
            for name, ms in measured.items()
        ),
        *(
            Figure("median batch, against that listener", statistics.median(ms) / median, "×", case=name)
            for name, ms in measured.items()
        ),
    ]


def _later(milliseconds: list[float], limit: float) -> int:
    return sum(each > limit for each in milliseconds)
