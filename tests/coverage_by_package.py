"""Print the coverage of each package. `coverage json -o -` writes the report that this reads from standard input."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

_COUNTED = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def table(files: Mapping[str, Any]) -> list[str]:
    """Return a header, a line for each package of the first two levels with its subpackages, and a line with totals."""
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path, file in sorted(files.items()):
        packages["/".join(path.split("/")[:-1][:2])].update({key: file["summary"][key] for key in _COUNTED})
    total = sum(packages.values(), Counter())
    head = f"{'package':<30}{'lines':>9}{'missed':>8}{'branches':>11}{'missed':>8}"
    return [head, *(_line(name, counts) for name, counts in sorted(packages.items())), _line("all", total)]


def _line(package: str, counts: Mapping[str, int]) -> str:
    statements, lines, branches, taken = (counts[key] for key in _COUNTED)
    lines_missed, branches_missed = statements - lines, branches - taken
    return (
        f"{package:<30}{_percent(lines, statements):>9}{lines_missed:>8}"
        f"{_percent(taken, branches):>11}{branches_missed:>8}"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    print(*table(json.load(sys.stdin)["files"]), sep="\n")
