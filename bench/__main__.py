"""Run every benchmark, or those named: `python -m bench [idle …]`; `--full`: at full size, where there are two."""

from __future__ import annotations

import importlib
import sys

from bench.figures import print_figures

BENCHMARKS = (
    "idle",
    "figures_cost",
    "rules",
    "coordinator",
    "savepoint",
    "restart",
    "recovery",
    "throughput",
    "polling",
    "history",
    "archive",
    "pages",
)
IN_TWO_SIZES = ("polling", "history", "archive", "pages")


def main() -> None:
    full = "--full" in sys.argv
    for name in [name for name in sys.argv[1:] if name != "--full"] or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
        module = importlib.import_module(f"bench.{name}")
        print_figures(
            module.__doc__.splitlines()[0],
            module.measure(full=True) if full and name in IN_TWO_SIZES else module.measure(),
        )


if __name__ == "__main__":
    main()
