"""Starting and ending driver processes.

A driver runs in a session of its own: a signal to the job manager's terminal does not reach it, and it outlives the job
manager (the next one adopts it). Only processes that this launcher started, or that registered with their pid for the
job and attempt in question and whose command line says so, are ever signalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from checkpointing.jobs.driver_spec import DriverSpec

LOG_NAME = "driver.log"
SPEC_NAME = "driver.json"
LOG_LINES_SHOWN = 30
_LOG_TAIL_BYTES = 16_384
_POLL_S = 0.1


class LaunchFailed(Exception):
    """The driver's process could not be started at all; the text says why."""


class DriverProcess(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int | None:
        """Return when the process has ended: its exit code, negative for a signal, None when it is not known."""
        ...

    async def end(self, grace_s: float) -> None:
        """Ask it to end, kill it after `grace_s`, return when it is gone. A process that is gone already is fine."""
        ...

    def last_log_lines(self) -> str: ...


class DriverLauncher(Protocol):
    def launch(self, spec: DriverSpec) -> DriverProcess:
        """Start the driver of `spec`. Blocking, short; LaunchFailed when that is impossible."""
        ...

    def adopt(self, pid: int, job_id: str, attempt: int, work_directory: Path) -> DriverProcess | None:
        """The process that an earlier job manager started for this attempt, or None when it is gone or another one."""
        ...


class LocalDriverLauncher:
    """Drivers are processes of this machine. `java_home` finds a Java; its errors become LaunchFailed."""

    def __init__(
        self, environ: Mapping[str, str], java_home: Callable[[], Path], *, module: str = "checkpointing.spark.driver"
    ) -> None:
        self._module = module
        self._environ = environ
        self._java_home = java_home

    def launch(self, spec: DriverSpec) -> DriverProcess:
        work = Path(spec.work_directory)
        try:
            work.mkdir(parents=True, exist_ok=True)
            spec_path = work / SPEC_NAME
            spec_path.write_text(json.dumps(spec.to_json(), indent=1))
            environment = self._environment(spec)
            with (work / LOG_NAME).open("ab") as log:
                popen = subprocess.Popen(
                    [sys.executable, "-m", self._module, str(spec_path)],
                    cwd=work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise LaunchFailed(f"The driver could not be started: {error}") from error
        return StartedProcess(popen, work)

    def adopt(self, pid: int, job_id: str, attempt: int, work_directory: Path) -> DriverProcess | None:
        process = AdoptedProcess(pid, work_directory)
        return process if process.is_alive() else None

    def _environment(self, spec: DriverSpec) -> dict[str, str]:
        package_root = str(Path(__file__).resolve().parents[2])
        python_path = [package_root, *filter(None, [self._environ.get("PYTHONPATH")])]
        # The driver needs no secret of the job manager's: it reads its token from the file its spec names.
        inherited = {name: value for name, value in self._environ.items() if name not in _SECRETS}
        return {
            **inherited,
            "JAVA_HOME": str(self._java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYTHONUNBUFFERED": "1",
            **spec.environment,
        }


_SECRETS = frozenset({"WAYMARK_JOBMANAGER_TOKEN", "WAYMARK_SECRET_KEY", "DATABASE_URL", "REDIS_URL", "EMAIL_URL"})


class StartedProcess:
    """A driver that this job manager started."""

    def __init__(self, popen: subprocess.Popen[bytes], work: Path) -> None:
        self._popen = popen
        self._work = work

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def wait(self) -> int | None:
        while not self._has_ended():  # noqa: ASYNC110  (a process sets no event)
            await asyncio.sleep(_POLL_S)
        return self._popen.returncode

    async def end(self, grace_s: float) -> None:
        await _end(self, self._signal, grace_s)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    def _has_ended(self) -> bool:
        if self._popen.returncode is not None:
            return True
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        # What the driver started (its JVM) must not write on. Before the driver is reaped: until then its pid, and with
        # it the id of its group, cannot have found another owner.
        self._signal(signal.SIGKILL)
        self._popen.wait()
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)


class AdoptedProcess:
    """A driver that an earlier job manager started: known by its pid and by the work directory in its command line."""

    def __init__(self, pid: int, work: Path) -> None:
        self._pid = pid
        self._work = work

    @property
    def pid(self) -> int:
        return self._pid

    def is_alive(self) -> bool:
        try:
            arguments = Path(f"/proc/{self._pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self._work / SPEC_NAME).encode() in arguments

    async def wait(self) -> int | None:
        while self.is_alive():  # noqa: ASYNC110  (not our child: nobody tells us)
            await asyncio.sleep(_POLL_S)
        return None

    async def end(self, grace_s: float) -> None:
        await _end(self, self._signal, grace_s)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    def _signal(self, number: signal.Signals) -> None:
        # The command line is read again right before the signal: a pid may have found another owner.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def tail(log: Path) -> str:
    """The last lines of a driver's log, "" when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])


async def _end(process: DriverProcess, send: Callable[[signal.Signals], None], grace_s: float) -> None:
    ended = asyncio.ensure_future(process.wait())
    try:
        done, _ = await asyncio.wait({ended}, timeout=0)
        if not done:
            send(signal.SIGTERM)
            done, _ = await asyncio.wait({ended}, timeout=grace_s)
        if not done:
            send(signal.SIGKILL)
        await ended
    finally:
        ended.cancel()
