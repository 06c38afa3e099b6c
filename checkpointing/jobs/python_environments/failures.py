"""Why an environment could not be prepared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_LAST_LINES = 40
# pip's exit code is 1 for every failure. Its log and its output tell apart an index that is away and a full disk, which
# may pass, from requirements that cannot be installed.
_THIS_MACHINE = re.compile(r"No space left on device|Disk quota exceeded|Cannot allocate memory")
_AWAY = re.compile(
    r"Could not fetch URL \S+ (?!4\d\d Client Error)|429 Client Error|HTTP error (5\d\d|429)|Max retries exceeded"
    r"|Read timed out|IncompleteRead|Connection aborted|Connection reset|Connection broken"
)
_NO_PIP = re.compile(r".*: No module named pip")


class EnvironmentFailed(Exception):
    """`is_mistake`: it would fail again with the same settings. `details` has the last lines of a command's output."""

    def __init__(self, message: str, *, is_mistake: bool, details: str = "") -> None:
        super().__init__(message)
        self.is_mistake = is_mistake
        self.details = details


class Stopped(Exception):
    """Nobody waits for the environment any more."""


def install_failed(output: Sequence[str], log: Path) -> EnvironmentFailed:
    """Return why pip failed, from its output and its log. Raise OSError."""
    reason = next((line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")), "")
    what, is_mistake = _kind_of(output, log)
    message = f"{what}: {reason or (output or ['pip printed nothing'])[-1]}"
    return EnvironmentFailed(message, is_mistake=is_mistake, details="\n".join(output[-_LAST_LINES:]))


def _kind_of(output: Sequence[str], log: Path) -> tuple[str, bool]:
    """Return what happened, and whether it would happen again. pip cannot write its log when the disk is full."""
    if any(map(_NO_PIP.fullmatch, output)):
        return "the job manager's Python has no pip, install it there", False
    if any(map(_THIS_MACHINE.search, output)) or _has(_THIS_MACHINE, log):
        return "this machine has no room for the environment", False
    if _has(_AWAY, log):
        return "pip could not reach its index", False
    return "pip could not install the requirements", True


def _has(pattern: re.Pattern[str], log: Path) -> bool:
    if not log.exists():
        return False
    with log.open(errors="replace") as lines:
        return any(map(pattern.search, lines))
