"""The record of running processes, which `up` writes and `status`, `doctor` and the next `up` read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dashboard.stack.parts import PartState
from dashboard.stack.process import ServerFailed, wait_until

# The order of the parts in every list.
KNOWN_PARTS = ("postgres", "redis", "zookeeper", "jobmanager", "worker", "beat", "web")


class AlreadyRunning(RuntimeError):
    """Another `up` runs with this directory. The message names its pid."""


@dataclass(frozen=True)
class PartRecord:
    """The state of one part. `pid_started` is the start time of the process, because the kernel reuses pids."""

    name: str
    state: str
    address: str = ""
    pid: int | None = None
    version: str = ""
    pid_started: int | None = None
    restarts: int = 0


class StackRecord:
    """The lock file and the list of parts in `directory` (var/run)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = directory / "up.lock"
        self._parts = directory / "parts.json"

    @contextlib.contextmanager
    def acquire_lock(self) -> Iterator[None]:
        """Hold the directory's lock, which the kernel frees when this process ends.

        Raises:
            AlreadyRunning: Another process holds the lock.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                # A concurrent `status` holds the lock for a moment.
                wait_until(lambda: _try_lock(descriptor), limit_s=0.5, what="the lock")
            except ServerFailed:
                raise AlreadyRunning(
                    f"Waymark is already running on {self.directory.parent} (pid {self._lock.read_text().strip()})."
                ) from None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def supervisor_pid(self) -> int | None:
        """Return the pid of the `up` that holds the lock, or None if no `up` runs.

        Raises:
            PermissionError: The lock file belongs to another account.
        """
        try:
            with self._lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(self._lock.read_text().strip() or 0) or None
        except (FileNotFoundError, NotADirectoryError):
            pass
        return None

    def write(self, parts: list[PartRecord]) -> None:
        temporary = self._parts.with_suffix(".new")
        temporary.write_text(json.dumps({"parts": [asdict(part) for part in parts]}, indent=1) + "\n")
        temporary.replace(self._parts)

    def read(self) -> list[PartRecord]:
        """Return the record of the last `up`, corrected by the processes that run now. [] without a record."""
        try:
            rows = json.loads(self._parts.read_text())["parts"]
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
            return []
        running = self.supervisor_pid() is not None
        return [_current_record(PartRecord(**row), running) for row in rows]

    def end_leftovers(self, report: Callable[[str], None], *, limit_s: float = 45) -> None:
        """Wait for the processes of a killed `up`, which end by themselves. Kill those that remain after `limit_s`."""
        leftovers = [part for part in self._read_records() if _is_alive(part)]
        if not leftovers:
            return
        report(f"waiting for {', '.join(part.name for part in leftovers)} of an earlier run to end")
        try:
            wait_until(lambda: not any(map(_is_alive, leftovers)), limit_s=limit_s, what="processes of an earlier run")
        except ServerFailed:
            for part in filter(_is_alive, leftovers):
                report(f"killing {part.name} of an earlier run (pid {part.pid})")
                os.kill(part.pid or 0, signal.SIGKILL)

    def _read_records(self) -> list[PartRecord]:
        try:
            return [PartRecord(**row) for row in json.loads(self._parts.read_text())["parts"]]
        except (FileNotFoundError, ValueError, KeyError):
            return []


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start_time(pid: int) -> int | None:
    """Return the start time of process `pid` in kernel ticks, or None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _is_alive(part: PartRecord) -> bool:
    return part.pid is not None and part.pid_started is not None and start_time(part.pid) == part.pid_started


def _current_record(part: PartRecord, supervisor_runs: bool) -> PartRecord:
    if part.state == PartState.EXTERNAL.value or (supervisor_runs and (_is_alive(part) or part.pid is None)):
        return part
    # The supervisor has ended, or has not yet noticed that the process ended.
    return PartRecord(part.name, PartState.DOWN.value, part.address, version=part.version, restarts=part.restarts)


def write_private(path: Path, text: str) -> None:
    """Write `text` to a file that only our account can read. The file is replaced atomically."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def store_environment(directory: Path, variables: Mapping[str, str]) -> None:
    """Store the variables, so that other commands such as `manage.py shell` find the servers that `up` started."""
    write_private(directory / "environment.json", json.dumps(dict(variables), indent=1) + "\n")


def adopt_environment(environ: Any, directory: Path) -> None:
    """Add to `environ` the missing variables of the stack that runs with `directory` (var/run) now."""
    try:
        if StackRecord(directory).supervisor_pid() is None:
            return
        variables = json.loads((directory / "environment.json").read_text())
    except (OSError, ValueError):
        return
    for name, value in variables.items():
        if not environ.get(name) and not environ.get(f"{name}_FILE"):
            environ[name] = value
