"""The job manager's side of one spare driver: a process that waits for a specification on its standard input.

The input is a socket, and only the job manager holds the other end. However the job manager ends, the spare driver
reads the end of its input and ends, too. The messages are:

  job manager → spare    the path of a driver's specification, one line
  spare → job manager    `ready`: its session has started · `taken`: it runs the attempt from now on

A spare driver gets work once. Before it says `taken` or starts the attempt, it links the specification into its own
directory. Its command line contains this directory and so identifies the attempt, too.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.jobs.launching.admission import Load
from checkpointing.jobs.launching.processes import SPEC_NAME, StartedProcess, command_line
from checkpointing.jobs.launching.signature import Signature

SPARE_NAME = "spare.json"
READY, TAKEN = b"ready\n", b"taken\n"


class SpareDriver:
    """A spare driver. Used by one thread at a time. `load` is what it uses on this machine."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        channel: socket.socket,
        directory: Path,
        signature: Signature,
        load: Load,
        started_s: float,
    ) -> None:
        channel.setblocking(False)
        self.popen = popen
        self.process = StartedProcess(popen, directory)
        self.directory = directory
        self.signature = signature
        self.load = load
        self.started_s = started_s
        self._channel = channel
        self._heard = b""

    @property
    def is_ready(self) -> bool:
        self._listen()
        return READY in self._heard

    @property
    def is_alive(self) -> bool:
        return not self.process.has_ended()

    def hand_over(self, spec_path: Path, clock: Clock, limit_s: float) -> bool:
        """Give the attempt to the spare driver.

        Return False if it did not take the attempt; then it is killed, and nothing of the attempt has run in it.
        """
        try:
            self._channel.send(f"{spec_path}\n".encode())
        except OSError:
            self.kill()
            return False
        deadline = clock.monotonic() + limit_s
        while TAKEN not in self._heard and clock.monotonic() < deadline:
            select.select([self._channel], [], [], max(0.0, deadline - clock.monotonic()))
            if not self._listen():
                break
        if TAKEN in self._heard:
            self._channel.close()
            return True
        self.kill()
        return TAKEN in self._heard

    def kill(self) -> None:
        """Kill the spare driver and the processes that it started. It has no data to lose."""
        self.process.signal(signal.SIGKILL)
        self.popen.wait()
        self._listen()
        self._channel.close()

    def _listen(self) -> bool:
        """Read the messages of the spare driver. Return False if it has closed the connection."""
        try:
            while part := self._channel.recv(64):
                self._heard += part
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


def is_spare_running(pid: int, work: Path, spares_directory: Path) -> bool:
    """Return whether `pid` is a former spare driver that took the attempt of this work directory."""
    for argument in command_line(pid):
        path = Path(argument)
        if path.name == SPARE_NAME and path.parent.parent == spares_directory:
            with contextlib.suppress(OSError):
                return path.with_name(SPEC_NAME).samefile(work / SPEC_NAME)
    return False
