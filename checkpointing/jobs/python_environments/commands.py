"""Runs pip and similar commands in a process group, within a time limit, until no caller waits for the result."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.jobs.launching.environment import program_environment
from checkpointing.jobs.launching.python import without_own_python
from checkpointing.jobs.python_environments.failures import EnvironmentFailed, Stopped
from checkpointing.jobs.python_environments.preparation import Preparation
from checkpointing.masking import mask_text

_LOOK_S = 0.1
_LINES_KEPT, _LONGEST_LINE = 200, 2_000
# How long to wait for the end of the output. A process that left the group may hold the output open.
_OUTPUT_ENDS_WITHIN_S = 5.0
# The job manager decides where pip installs packages.
_NOT_FOR_PIP = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_REQUIREMENT"})


class Deadline:
    """The time limit of one preparation."""

    def __init__(self, clock: Clock, limit_s: float, preparation: Preparation) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._end_s = clock.monotonic() + limit_s
        self._preparation = preparation

    def check(self) -> None:
        """Raise Stopped, or EnvironmentFailed when the time is over."""
        if self._preparation.stop.is_set():
            raise Stopped
        if self._clock.monotonic() > self._end_s:
            raise EnvironmentFailed(
                f"the environment was not ready after {self._limit_s:g} s (WAYMARK_ENVIRONMENT_TIMEOUT)",
                is_mistake=False,
            )

    def pause(self, last_line: str) -> None:
        """Show the last line of a command's output, wait a moment, and check."""
        self._preparation.output = last_line
        self._preparation.stop.wait(_LOOK_S)
        self.check()


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pip receives: few, because it may run programs of the packages that it installs."""
    allowed = without_own_python(program_environment(environ, ["PIP_*", "NETRC"]))
    return {name: value for name, value in allowed.items() if name not in _NOT_FOR_PIP}


def pip_command(python: Path, log: Path, *arguments: str) -> list[str]:
    """Return the command that runs the job manager's pip for the environment of `python`. `log` receives its log."""
    options = ("--no-input", "--disable-pip-version-check", "--progress-bar=off", f"--log={log}")
    return [sys.executable, "-m", "pip", "--python", str(python), "install", *options, "--no-user", *arguments]


def run(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, deadline: Deadline
) -> tuple[int, list[str]]:
    """Return the exit code and the last lines of the output, without secrets.

    Raise EnvironmentFailed, Stopped or OSError. The output is kept in memory: a file would be empty when the disk is
    full, and the reason would be lost.
    """
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(writer)
        reading = in_daemon_thread(partial(_read, reader, lines), "output of a command")
    try:
        while process.poll() is None:
            deadline.pause(lines[-1] if lines else "")
    except EnvironmentFailed as error:
        error.details = "\n".join(lines.copy())
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with contextlib.suppress(TimeoutError):
        reading.result(_OUTPUT_ENDS_WITHIN_S)
    return process.returncode, list(lines.copy())


def _read(descriptor: int, lines: deque[str]) -> None:
    """Keep each line without the passwords that addresses of indexes may hold."""
    with open(descriptor, "rb") as output:
        while line := output.readline(_LONGEST_LINE):
            if text := line.decode(errors="replace").rstrip():
                lines.append(str(mask_text(text)))
