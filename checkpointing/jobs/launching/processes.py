"""Driver processes of this machine: followed, ended, adopted.

Only two kinds of processes get signals. This job manager started the process, or the process registered with its PID
for the job and attempt and has a matching command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launcher import DriverProcess, Loss

SPEC_NAME = "driver.json"
SECRET_HEADER = "X-Waymark-Attempt-Secret"  # noqa: S105  (the name of a header)
LOG_LINES_SHOWN = 30
_LOG_TAIL_BYTES = 16_384
_POLL_S = 0.1


class StartedProcess:
    """A driver that this job manager started, as the leader of a separate session. `work`: the attempt's directory."""

    has_started = True
    loss: Loss | None = None

    def __init__(self, popen: subprocess.Popen[bytes], work: Path) -> None:
        self._popen = popen
        self._work = work

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def wait(self) -> int | None:
        while not self.has_ended():  # noqa: ASYNC110  (a process sets no event)
            await asyncio.sleep(_POLL_S)
        return self._popen.returncode

    async def end(self, grace_s: float) -> None:
        await _end(self, self.signal, grace_s)
        # A JVM with a large heap exits some time after it was killed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while not self.left_nothing:  # noqa: ASYNC110  (processes set no event)
                    await asyncio.sleep(_POLL_S / 2)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    @property
    def left_nothing(self) -> bool:
        return self._popen.returncode is not None and not _is_group_running(self._popen.pid)

    def has_ended(self) -> bool:
        if self._popen.returncode is not None:
            return True
        try:
            if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
        except ChildProcessError:  # another thread has already reaped the process
            return self._popen.poll() is not None
        # The driver's JVM must not write any more. Kill the group before the driver is reaped, because until then its
        # PID, which is also the ID of its group, cannot be reused.
        self.signal(signal.SIGKILL)
        self._popen.wait()
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver and all processes that it started. Do nothing if it has ended."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)


class AdoptedProcess:
    """A driver that an earlier job manager started. `pid` belongs to it as long as its command line is the same.

    The check reads only /proc, because it runs on the event loop.
    """

    has_started = True
    loss: Loss | None = None
    left_nothing = False  # the group's ID may be reused by now

    def __init__(self, pid: int, work: Path) -> None:
        self._pid = pid
        self._work = work
        self._command_line = command_line(pid)

    @property
    def pid(self) -> int:
        return self._pid

    def is_alive(self) -> bool:
        return bool(self._command_line) and command_line(self._pid) == self._command_line

    async def wait(self) -> int | None:
        while self.is_alive():  # noqa: ASYNC110  (not a child process: no event reports its end)
            await asyncio.sleep(_POLL_S)
        return None

    async def end(self, grace_s: float) -> None:
        await _end(self, self._signal, grace_s)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    def _signal(self, number: signal.Signals) -> None:
        # Check again right before the signal, because the PID may be reused.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def _is_group_running(group: int) -> bool:
    """Return whether a process of this group still runs. A killed process that is not yet reaped does not count."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The file has "pid (name) state parent group …", and the name may contain any characters.
                state, _, found = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(found) == group and state not in "ZX":
                    return True
    return False


def command_line(pid: int) -> list[str]:
    """Return the command line. It is empty if there is no such process, or if it has ended and is not yet reaped."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(argument) for argument in arguments if argument]


def write_private(path: Path, text: str) -> Path:
    """Write a new file that only this user can read, because a job's settings may contain secrets."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def tail(log: Path) -> str:
    """Return the last lines of a driver's log, or "" if there is none."""
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
