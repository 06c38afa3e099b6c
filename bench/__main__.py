"""Run all benchmarks or the named ones: `python -m bench [idle …]`. With `--full`, some run at full size.

The figures are printed, and replace the earlier figures of the benchmark in docs/benchmarks.md.
"""

from __future__ import annotations

import importlib
import signal
import sys
import traceback

from bench import page
from bench.figures import BenchmarkFailed, print_figures

BENCHMARKS = (
    "idle",
    "figures_cost",
    "agent",
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
    "browser_pages",
)
IN_TWO_SIZES = ("polling", "history", "archive", "pages")


def main() -> None:
    # Exit normally on SIGTERM, for example from `timeout`, so that the benchmark removes its files.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    full = "--full" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--full"] or BENCHMARKS
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
    failed = [name for name in names if not _measured(name, full=full)]
    if failed:
        sys.exit(f"failed, without figures: {', '.join(failed)}")


def _measured(name: str, *, full: bool) -> bool:
    """Run one benchmark. If it fails, print the error and return False, so that the others still run."""
    module = importlib.import_module(f"bench.{name}")
    try:
        figures = module.measure(full=True) if full and name in IN_TWO_SIZES else module.measure()
    except Exception as error:  # noqa: BLE001 - the loop's edge
        if not isinstance(error, BenchmarkFailed) or error.__cause__ is not None:
            traceback.print_exc()
        print(f"{name} failed: {error}", file=sys.stderr)
        return False
    print_figures(module.__doc__.splitlines()[0], figures)
    page.record(f"{name} --full" if full and name in IN_TWO_SIZES else name, figures)
    return True


if __name__ == "__main__":
    main()
