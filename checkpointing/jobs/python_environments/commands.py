"""Run pip and the like: in a process group of its own, bounded in time, ended when nobody waits for it any more."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.jobs.launching.environment import program_environment
from checkpointing.jobs.launching.python import without_own_python
from checkpointing.jobs.python_environments.failures import EnvironmentFailed, Stopped
from checkpointing.jobs.python_environments.preparation import Preparation

_LOOK_S = 0.1
_MOST_OUTPUT = 64 << 10
# Where pip installs to, the job manager says.
_NOT_FOR_PIP = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_REQUIREMENT"})


class Deadline:
    """The end of the time that one environment may take."""

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

    def pause(self) -> None:
        """Wait a moment, and check."""
        self._preparation.stop.wait(_LOOK_S)
        self.check()


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what pip gets of the job manager's environment: it may run programs of packages that it installs."""
    allowed = without_own_python(program_environment(environ, ["PIP_*", "NETRC"]))
    return {name: value for name, value in allowed.items() if name not in _NOT_FOR_PIP}


def pip_command(python: Path, log: Path, *arguments: str) -> list[str]:
    """Return the job manager's pip, which installs into the environment of `python`. `log` gets all that it knows."""
    options = ("--no-input", "--disable-pip-version-check", "--progress-bar=off", f"--log={log}")
    return [sys.executable, "-m", "pip", "--python", str(python), "install", *options, "--no-user", *arguments]


def run(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, deadline: Deadline
) -> tuple[int, list[str]]:
    """Return the exit code and the last lines. EnvironmentFailed, Stopped, OSError."""
    log = directory / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            deadline.pause()
    except EnvironmentFailed as error:
        error.details = "\n".join(_last_lines(log))
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, _last_lines(log)


def _last_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MOST_OUTPUT))
        return file.read().decode(errors="replace").splitlines()
