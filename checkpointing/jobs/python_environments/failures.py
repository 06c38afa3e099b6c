"""Why an environment could not be prepared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from checkpointing.masking import mask_text

_LAST_LINES, _LONGEST_LINE = 40, 400
# pip's exit code is 1 for every failure. Its output and its log distinguish temporary failures from mistakes.
_MAY_PASS = (
    ("the job manager's Python has no pip; install it there", re.compile(r"No module named pip$")),
    (
        "this machine has no room for the environment",
        re.compile(r"No space left on device|Disk quota exceeded|Cannot allocate memory"),
    ),
    (
        "pip could not reach its index",
        re.compile(
            r"Could not fetch URL \S+ (?!4\d\d Client Error)|429 Client Error|HTTP error (5\d\d|429)"
            r"|Max retries exceeded|Read timed out|IncompleteRead|Connection aborted|Connection reset|Connection broken"
        ),
    ),
)


class EnvironmentFailed(Exception):
    """An environment could not be prepared. `is_mistake`: the same settings would fail again.

    `details` has the last lines of a command's output.
    """

    def __init__(self, message: str, *, is_mistake: bool, details: str = "") -> None:
        super().__init__(message)
        self.is_mistake = is_mistake
        self.details = details


class Stopped(Exception):
    """The caller no longer waits for the environment."""


def install_failed(output: Sequence[str], log: Path) -> EnvironmentFailed:
    """Return why pip failed. Raise OSError."""
    details = "\n".join(output[-_LAST_LINES:])
    for what, pattern in _MAY_PASS:
        if reason := _first(pattern, output, log):
            return EnvironmentFailed(f"{what}: {reason}", is_mistake=False, details=details)
    errors = [line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")]
    reason = (errors[:1] or output[-1:] or ["pip printed nothing"])[0]
    return EnvironmentFailed(f"pip could not install the requirements: {reason}", is_mistake=True, details=details)


def _first(pattern: re.Pattern[str], output: Sequence[str], log: Path) -> str:
    """Return the first line of the output that matches, else the first match in the log with the rest of its line."""
    for line in output:
        if pattern.search(line):
            return line.removeprefix("ERROR: ")[:_LONGEST_LINE]
    if log.exists():
        with log.open(errors="replace") as lines:
            for line in lines:
                if match := pattern.search(line.rstrip()):
                    return str(mask_text(line.rstrip()[match.start() :]))[:_LONGEST_LINE]
    return ""
