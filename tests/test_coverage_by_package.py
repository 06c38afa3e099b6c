from __future__ import annotations

from tests.coverage_by_package import table


def file(statements: int, covered: int, branches: int, taken: int) -> dict[str, object]:
    counts = {"num_statements": statements, "covered_lines": covered}
    return {"summary": {**counts, "num_branches": branches, "covered_branches": taken, "percent_covered": 1.5}}


def test_files_count_towards_their_package_two_levels_deep() -> None:
    files = {
        "monitoring/recovery/giving_up.py": file(30, 30, 4, 3),
        "monitoring/recovery/launch/command.py": file(10, 5, 0, 0),
        "monitoring/tasks.py": file(8, 0, 2, 0),
        "dashboard/beat/__init__.py": file(0, 0, 0, 0),
    }
    assert [line.split() for line in table(files)] == [
        ["package", "lines", "missed", "branches", "missed"],
        ["dashboard/beat", "-", "0", "-", "0"],
        ["monitoring", "0.0", "%", "8", "0.0", "%", "2"],
        ["monitoring/recovery", "87.5", "%", "5", "75.0", "%", "1"],
        ["all", "72.9", "%", "13", "50.0", "%", "3"],
    ]
