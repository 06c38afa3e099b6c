"""`python -m bench` reports a failed benchmark by a message and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench import page
from bench.figures import Figure
from bench.page import with_figures

ROOT = Path(__file__).parents[1]


def test_a_benchmark_without_enough_disk_space_fails_with_the_cause() -> None:
    more_than_any_disk = {**os.environ, "BENCH_STATE_BYTES": str(10**18)}
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "savepoint"], cwd=ROOT, env=more_than_any_disk, capture_output=True, text=True
    )
    assert ended.returncode == 1
    result, failed = ended.stderr.splitlines()[-2:]
    assert result.startswith("savepoint failed: ")
    assert "GB are free in" in result
    assert failed == "failed, without figures: savepoint"


PAGE = """# Benchmarks

| benchmark | what is measured | figure | goal | measured |
| --- | --- | --- | --- | --- |
| `rules` | one pass | 1.00 s | – | then |
| | a storm | 2.00 s | – | then |
| `pages` | a page | 3.00 ms | – | then |

Notes.
"""


def test_a_benchmark_replaces_its_rows_on_the_page() -> None:
    figures = [Figure("one pass", 0.5, "s", 2), Figure("without a row", 0, "", 0), Figure("a ratio", 0.4, "×")]

    written = with_figures(PAGE, "rules", figures, "now, 2 cores")

    assert written.splitlines()[4:9] == [
        "| `rules` | one pass | 0.50 s | ≤ 2.00 s: met | now, 2 cores |",
        "| | without a row | 0.00 | ≤ 0.00: met | now, 2 cores |",
        "| | a ratio | 0.40 × | – | now, 2 cores |",
        "| `pages` | a page | 3.00 ms | – | then |",
        "",
    ]
    added = with_figures(written, "pages --full", [Figure("a page", 4, "ms")], "now")
    assert added.splitlines()[7:9] == [
        "| `pages` | a page | 3.00 ms | – | then |",
        "| `pages --full` | a page | 4.00 ms | – | now |",
    ]
    assert added.endswith("\n\nNotes.\n")


def test_the_page_has_the_table_that_benchmarks_write_to() -> None:
    assert "| `new` | x | 1.00 s | – | now |" in with_figures(
        page.PAGE.read_text(), "new", [Figure("x", 1, "s")], "now"
    )
