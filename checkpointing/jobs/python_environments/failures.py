"""Why no environment could be made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from checkpointing.masking import mask_text

_LAST_LINES = 40
# pip ends with 1 for everything. What its log says of connections, and of this machine's disk, tells trouble that may
# pass from requirements that nobody can install.
_TEMPORARY = re.compile(
    r"Could not fetch URL \S+ (?!4\d\d Client Error)|429 Client Error|HTTP error (5\d\d|429)|Max retries exceeded"
    r"|Read timed out|IncompleteRead|Connection aborted|Connection reset|Connection broken"
    r"|No space left on device|Disk quota exceeded|Cannot allocate memory"
)


class EnvironmentFailed(Exception):
    """`is_mistake`: with the same settings it would fail again. `details` has the last lines of what was run."""

    def __init__(self, message: str, *, is_mistake: bool, details: str = "") -> None:
        super().__init__(message)
        self.is_mistake = is_mistake
        self.details = details


class Stopped(Exception):
    """Nobody waits for the environment any more."""


def install_failed(output: Sequence[str], *, is_temporary: bool) -> EnvironmentFailed:
    """Return what pip's output says. Addresses of indexes may hold passwords, which are replaced."""
    lines = [str(mask_text(line)) for line in output]
    reason = next((line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")), "")
    what = "pip could not reach what it needs" if is_temporary else "pip could not install the requirements"
    message = f"{what}: {reason or (lines or ['it failed without a word'])[-1]}"
    return EnvironmentFailed(message, is_mistake=not is_temporary, details="\n".join(lines[-_LAST_LINES:]))


def has_temporary_failure(log: Path) -> bool:
    """Return whether pip's log tells of trouble that may pass. OSError."""
    with log.open(errors="replace") as lines:
        return any(_TEMPORARY.search(line) for line in lines)
