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

| benchmark | what is measured | figure (goal) |
| --- | --- | --- |
| `rules` then, busy | one pass | 1 s (≤ 2) |
| | a storm | 2 s (≤ 2) |
| `pages` then | a page | 3 ms (≤ 9) |

Notes.
"""


def test_a_benchmark_replaces_its_rows_on_the_page() -> None:
    figures = [Figure("one pass", 0.512, "s", 2), Figure("rows", 1234.5, "/s", 2_000, at_most=False)]

    written = with_figures(PAGE, "rules", figures, "now")

    assert written.splitlines()[4:8] == [
        "| `rules` now | one pass | 0.512 s (≤ 2) |",
        "| | rows | 1,234 /s (≥ 2,000, **missed**) |",
        "| `pages` then | a page | 3 ms (≤ 9) |",
        "",
    ]
    added = with_figures(written, "pages --full", [Figure("a page", 4, "ms", 9)], "now")
    assert added.splitlines()[6:8] == [
        "| `pages` then | a page | 3 ms (≤ 9) |",
        "| `pages --full` now | a page | 4 ms (≤ 9) |",
    ]
    assert added.endswith("\n\nNotes.\n")


def test_the_page_has_only_figures_with_goals_and_those_of_one_name_share_a_row() -> None:
    figures = [
        Figure("a page", 3, "ms", 5, case="small"),
        Figure("processor time", 2, "ms", case="small"),
        Figure("a page", 80, "ms", 9, case="large"),
    ]
    rows = with_figures(PAGE, "pages", figures, "now").splitlines()[6:8]
    assert rows == ["| `pages` now | a page: small; large | 3; 80 ms (≤ 5; ≤ 9, **missed**) |", ""]


def test_the_page_has_the_table_that_benchmarks_write_to() -> None:
    assert "| `new` now | x | 1 s (≤ 1) |" in with_figures(
        page.PAGE.read_text(), "new", [Figure("x", 1, "s", 1)], "now"
    )
