"""One child process: started so that it cannot outlive its parent, stopped politely first."""

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
    """A server could not be prepared, ended while it started, or did not answer in time; the text says which."""


@dataclass(frozen=True)
class Command:
    """How to start one process and how to ask it to stop.

    `user` is the uid that it drops to, None for our own; `group` its gid, None for the same number.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    user: int | None = None
    group: int | None = None
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    stop_grace_s: float = 10.0
    # What the kernel sends should our process die without stopping it.
    death_signal: signal.Signals = signal.SIGTERM


class Server(Protocol):
    """A server that runs as one child process."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    def prepare(self) -> None:
        """Make what the server needs to start; does nothing the second time. Raises ServerFailed."""
        ...

    def command(self) -> Command: ...

    def answers(self) -> bool:
        """It serves right now. Never raises, never takes longer than about a second."""
        ...


def spawn(command: Command, output: int | IO[Any] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, stdout and stderr to `output`.

    Call it from the main thread: the kernel sends the death signal when the *thread* that forked ends.
    """
    parent = os.getpid()
    death_signal = int(command.death_signal)

    def die_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    # A uid without its groups: the child must not keep root's.
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
        # Ctrl-C at the terminal reaches only the supervisor, which stops its children in order.
        start_new_session=True,
        preexec_fn=die_with_parent,
        **drop,
    )


def stop(process: subprocess.Popen[bytes], command: Command) -> None:
    """Ask with each stop signal in turn, `stop_grace_s` for each, then SIGKILL. Returns when the process is gone."""
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
    """The processes below `pid` right now, those in sessions of their own (a job's driver) too."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def wait_until(condition: Callable[[], bool], *, limit_s: float, what: str, every_s: float = 0.05) -> None:
    """Return once `condition()` holds; ServerFailed, naming `what`, after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"{what}: nothing after {limit_s:g} s")
        time.sleep(every_s)


@contextmanager
def running(server: Server, *, log: Path, limit_s: float = 60) -> Iterator[Server]:
    """`server` prepared, started and answering inside the block; stopped, with nothing left over, after it."""
    server.prepare()
    command = server.command()
    with log.open("ab") as output:
        process = spawn(command, output)

    def answers_or_ended() -> bool:
        if process.poll() is not None:
            raise ServerFailed(f"{server.name} ended with {process.returncode} while it started:\n{_tail(log)}")
        return server.answers()

    try:
        wait_until(answers_or_ended, limit_s=limit_s, what=f"{server.name} at {server.address}")
        yield server
    finally:
        stop(process, command)


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
