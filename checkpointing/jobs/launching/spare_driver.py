"""One spare driver, as the job manager sees it: a process that waits for a specification on its standard input.

The input is a socket of which the job manager alone holds the other end: when the job manager ends, however, the spare
reads the end of it and ends too. What is said over it:

    job manager → spare    the path of a driver's specification, one line
    spare → job manager    `ready`, its session has started · `taken`, the attempt is its own from here on

A spare is given work once. It takes it by linking the specification into its own directory, before it says `taken` and
before it does anything of the attempt: so its command line, which names the directory, names the attempt, too.
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
    """Use from one thread at a time. `load` is what it takes of this machine."""

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
        """Give it the attempt. False: nothing of the attempt has run or will run in it, and it is gone."""
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
        """Return when it, and what it started, is gone. It holds nothing that it could lose."""
        self.process.signal(signal.SIGKILL)
        self.popen.wait()
        self._listen()
        self._channel.close()

    def _listen(self) -> bool:
        """Take in what it has said; False when it has hung up."""
        try:
            while part := self._channel.recv(64):
                self._heard += part
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


def is_spare_running(pid: int, work: Path, spares_directory: Path) -> bool:
    """Whether `pid` is a former spare that was given the attempt of this work directory."""
    for argument in command_line(pid):
        path = Path(argument)
        if path.name == SPARE_NAME and path.parent.parent == spares_directory:
            with contextlib.suppress(OSError):
                return path.with_name(SPEC_NAME).samefile(work / SPEC_NAME)
    return False
