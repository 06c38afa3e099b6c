"""The CPU time of this process and its descendants. It depends less on other work than elapsed time does."""

from __future__ import annotations

import psutil

PARTS = ("PostgreSQL", "Java", "Python")


def used() -> dict[str, float]:
    """Return the CPU seconds by part.

    The time of an ended process counts for the parent that waited for it.
    """
    found = dict.fromkeys(PARTS, 0.0)
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        found[_part(name)] += times.user + times.system + times.children_user + times.children_system
    return found


def _part(name: str) -> str:
    if name.startswith("postgres"):
        return "PostgreSQL"
    return "Java" if name == "java" else "Python"
