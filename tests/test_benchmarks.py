"""`python -m bench`: what could not be measured is told, in words and by the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_benchmark_without_the_room_that_it_needs_says_so_and_fails() -> None:
    more_than_any_disk = {**os.environ, "BENCH_STATE_BYTES": str(10**18)}
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "savepoint"], cwd=ROOT, env=more_than_any_disk, capture_output=True, text=True
    )
    assert ended.returncode == 1
    told, failed = ended.stderr.splitlines()[-2:]
    assert told.startswith("savepoint failed: ")
    assert "GB are free in" in told
    assert failed == "failed, without figures: savepoint"
