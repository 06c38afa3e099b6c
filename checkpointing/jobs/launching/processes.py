"""Driver processes of this machine: followed, ended, adopted.

Only processes that this job manager started, or that registered with their pid for the job and attempt in question and
whose command line says so, are ever signalled.
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
SECRET_HEADER = "X-Waymark-Attempt-Secret"  # noqa: S105  (its name)
LOG_LINES_SHOWN = 30
_LOG_TAIL_BYTES = 16_384
_POLL_S = 0.1


class StartedProcess:
    """A driver that this job manager started, as the leader of a session of its own. `work` is the attempt's."""

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
        # A JVM with a large heap takes a moment to go after it was killed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while not self.left_nothing:  # noqa: ASYNC110  (processes set no event)
                    await asyncio.sleep(_POLL_S / 2)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    @property
    def left_nothing(self) -> bool:
        return self._popen.returncode is not None and not _group_lives(self._popen.pid)

    def has_ended(self) -> bool:
        if self._popen.returncode is not None:
            return True
        try:
            if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
        except ChildProcessError:  # another thread has just reaped it
            return self._popen.poll() is not None
        # What the driver started (its JVM) must not write on. Before the driver is reaped: until then its pid, and with
        # it the id of its group, cannot have found another owner.
        self.signal(signal.SIGKILL)
        self._popen.wait()
        return True

    def signal(self, number: signal.Signals) -> None:
        """To the driver and all that it started; nothing when it has ended."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)


class AdoptedProcess:
    """A driver that an earlier job manager started. `pid` is that driver's now, and as long as its command line stays.

    No file but /proc is read for that: this is asked on the event loop.
    """

    has_started = True
    loss: Loss | None = None
    left_nothing = False  # its group may have found another owner by now

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
        while self.is_alive():  # noqa: ASYNC110  (not our child: nobody tells us)
            await asyncio.sleep(_POLL_S)
        return None

    async def end(self, grace_s: float) -> None:
        await _end(self, self._signal, grace_s)

    def last_log_lines(self) -> str:
        return tail(self._work / LOG_NAME)

    def _signal(self, number: signal.Signals) -> None:
        # Asked again right before the signal: a pid may have found another owner.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def _group_lives(group: int) -> bool:
    """Whether a process of this group still runs; one that was killed and not yet reaped does not."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state parent group …": the name may hold anything.
                state, _, found = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(found) == group and state not in "ZX":
                    return True
    return False


def command_line(pid: int) -> list[str]:
    """Empty when there is no such process, or when it has ended and waits to be reaped."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(argument) for argument in arguments if argument]


def write_private(path: Path, text: str) -> Path:
    """A new file that only this user can read: a job's settings may be secrets."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


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
