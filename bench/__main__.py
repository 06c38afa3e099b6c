"""Run every benchmark, or those named: `python -m bench [idle …]`."""

from __future__ import annotations

import importlib
import sys

from bench.figures import print_figures

BENCHMARKS = ("idle", "figures_cost", "coordinator", "savepoint", "restart", "throughput")


def main() -> None:
    for name in sys.argv[1:] or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
        module = importlib.import_module(f"bench.{name}")
        print_figures(module.__doc__.splitlines()[0], module.measure())


if __name__ == "__main__":
    main()
