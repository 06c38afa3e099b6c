"""Start and stop one child process. The kernel ends the child if its parent dies."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ServerFailed(RuntimeError):
    """A server could not be prepared, ended during its start, or did not answer in time. The message says which."""


@dataclass(frozen=True)
class Command:
    """The command line of a process, and the signals that stop the process.

    `user` is the uid of the process, or None for our uid. `group` is its gid, or None for the number in `user`.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    user: int | None = None
    group: int | None = None
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    stop_grace_s: float = 10.0
    # The signal that the kernel sends to the process if our process dies first.
    death_signal: signal.Signals = signal.SIGTERM


class Server(Protocol):
    """The interface of a server that runs as one child process."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    def prepare(self) -> None:
        """Create the files that the server needs. A second call does nothing. Raises ServerFailed."""
        ...

    def command(self) -> Command: ...

    def answers(self) -> bool:
        """Return whether the server serves now. Never raises, and takes at most about a second."""
        ...


def spawn(command: Command, output: int | IO[Any] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a new session, with stdout and stderr to `output`.

    Call it from the main thread, because the kernel sends the death signal when the *thread* that forked ends.
    """
    parent = os.getpid()
    death_signal = int(command.death_signal)

    def die_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # the parent died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    # Drop the supplementary groups too, so that the child does not keep those of root.
    drop: dict[str, Any] = {}
    if command.user is not None and command.user != os.geteuid():
        group = command.user if command.group is None else command.group
        drop = {"user": command.user, "group": group, "extra_groups": []}
    return subprocess.Popen(
        command.argv,
        env={**os.environ, **command.environment},
        cwd=command.directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        # Ctrl-C at the terminal must reach only the supervisor, which stops its children in order.
        start_new_session=True,
        preexec_fn=die_with_parent,
        **drop,
    )


def stop(process: subprocess.Popen[bytes], command: Command) -> None:
    """Send each stop signal, wait `stop_grace_s` after each, then send SIGKILL. Return when the process has ended."""
    for request in (*command.stop_signals, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(request)
        try:
            process.wait(timeout=command.stop_grace_s)
        except subprocess.TimeoutExpired:
            continue
        return
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of `pid`, including those in other sessions such as drivers."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # the process has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def wait_until(condition: Callable[[], bool], *, limit_s: float, what: str, every_s: float = 0.05) -> None:
    """Return once `condition()` holds. Raise ServerFailed with `what` in its message after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"{what}: timed out after {limit_s:g} s")
        time.sleep(every_s)


@contextmanager
def running(server: Server, *, log: Path, limit_s: float = 60) -> Iterator[Server]:
    """Prepare and start `server`, and run the block once it answers. Stop it after the block."""
    server.prepare()
    command = server.command()
    with log.open("ab") as output:
        process = spawn(command, output)

    def answers_or_ended() -> bool:
        if process.poll() is not None:
            raise ServerFailed(
                f"{server.name} ended with exit code {process.returncode} during its start. The end of its "
                f"log:\n{_tail(log)}"
            )
        return server.answers()

    try:
        wait_until(answers_or_ended, limit_s=limit_s, what=f"{server.name} at {server.address}")
        yield server
    finally:
        stop(process, command)


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
