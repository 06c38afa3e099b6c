"""A control group for each driver, with a memory limit that the kernel enforces. Version 2 only.

systemd delegates the group of a service with `Delegate=yes` and an account that is not root. Then Waymark may divide
it. A group with limited groups below it may hold no process itself. So all processes of the service move to one group
first:

    waymark.service/waymark            the job manager, and what else runs in the service
    waymark.service/driver-<pid>       a driver, its JVM and its Python workers: memory.max, memory.oom.group

A group is found again by the pid that it is named after, by the next job manager, too. An empty one is removed when the
next driver starts. Reads and writes files: not for the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from checkpointing.jobs.launcher import DriverProcess, Loss
from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.demand import gib
from checkpointing.model.configuration import InvalidConfiguration, memory_bytes

logger = logging.getLogger(__name__)

LIMIT = "waymark.driver.memory-limit"
# The default limit is this multiple of the demand. It leaves room for page cache, RocksDB and large pandas frames.
_DEFAULT_SHARE = 2
_OWN, _DRIVER = "waymark", "driver-"
# How often the group is emptied, because new processes may start in it while the others leave.
_ROUNDS = 50


class NoGroups(Enum):
    """Why drivers cannot be limited here."""

    NO_VERSION_2 = "this machine has no control groups of version 2"
    NO_MEMORY = "the control groups of version 2 have no memory controller here"
    NO_SERVICE = "Waymark does not run as a systemd service"
    IS_ROOT = "Waymark runs as root, and systemd delegates no control group to root"
    NOT_DELEGATED = "the service has no Delegate=yes"


def limit_of(configuration: Mapping[str, str], demand: Demand) -> int:
    """Return the driver's memory limit in bytes. Raise InvalidConfiguration."""
    if LIMIT not in configuration:
        return _DEFAULT_SHARE * demand.memory
    limit = memory_bytes(LIMIT, configuration[LIMIT])
    if limit < demand.memory:
        allowed = f"at least what the driver requests, {gib(demand.memory)}"
        raise InvalidConfiguration(LIMIT, configuration[LIMIT], allowed)
    return limit


def delegated_group(
    process: str = "self", proc: Path = Path("/proc"), mount: Path = Path("/sys/fs/cgroup"), uid: int | None = None
) -> Path | NoGroups:
    """Return the group of `process` (a pid) that may be divided, or why there is none. Changes nothing."""
    unified = next((root for root in (mount, mount / "unified") if (root / "cgroup.controllers").exists()), None)
    path = _path_of(process, proc)
    if unified is None or path is None:
        return NoGroups.NO_VERSION_2
    group = unified / path
    # The process may be in a subgroup, made by Waymark or by DelegateSubgroup=.
    group = group if group.suffix == ".service" else group.parent
    if group.suffix != ".service":
        return NoGroups.NO_SERVICE
    if (os.geteuid() if uid is None else uid) == 0:
        return NoGroups.IS_ROOT
    if "memory" not in _read(group / "cgroup.controllers").split():
        return NoGroups.NO_MEMORY
    if not os.access(group, os.W_OK) or not os.access(group / "cgroup.procs", os.W_OK):
        return NoGroups.NOT_DELEGATED
    return group


class DriverGroups:
    """The drivers' groups below `root`. Call `prepare` first, which divides `root`."""

    def __init__(self, root: Path, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._held: set[Path] = set()

    def prepare(self) -> None:
        """Divide `root`. Raise OSError if that fails; then no driver can be limited."""
        own = self._root / _OWN
        own.mkdir(exist_ok=True)
        for _ in range(_ROUNDS):
            pids = _read(self._root / "cgroup.procs").split()
            if not pids:
                break
            for pid in pids:
                _move(pid, own)
        (self._root / "cgroup.subtree_control").write_text("+memory")

    def place(self, pid: int, limit: int) -> DriverGroup:
        """Limit a driver that was just started, together with the processes that it has already started. Raise OSError.

        The group stays until `release`, so that it can later show why the driver has ended.
        """
        self._remove_empty()
        path = self._root / f"{_DRIVER}{pid}"
        path.mkdir(exist_ok=True)
        self._held.add(path)
        (path / "memory.max").write_text(str(limit))
        (path / "memory.oom.group").write_text("1")  # the kernel ends the whole group, not half of a driver
        group = DriverGroup(path, _count_kills(path))
        _move(str(pid), path)
        for member in self._session_of(pid):
            _move(member, path)
        return group

    def of(self, pid: int) -> DriverGroup | None:
        """Return the group of a driver that an earlier job manager placed."""
        path = self._root / f"{_DRIVER}{pid}"
        if not path.is_dir():
            return None
        self._held.add(path)
        return DriverGroup(path)

    def release(self, group: DriverGroup) -> None:
        """Allow the removal of the group once it is empty. No I/O."""
        self._held.discard(group.path)

    def _session_of(self, leader: int) -> list[str]:
        """Return the processes that a driver has started before it was in its group."""
        found = []
        for entry in self._proc.iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The file has "pid (name) state parent group session …", and the name may contain any characters.
                if entry.name.isdigit() and int(_stat(entry)[3]) == leader and int(entry.name) != leader:
                    found.append(entry.name)
        return found

    def _remove_empty(self) -> None:
        for path in self._root.glob(f"{_DRIVER}*"):
            pid = path.name.removeprefix(_DRIVER)
            if path not in self._held and not (self._proc / pid).exists():
                with contextlib.suppress(OSError):  # some processes of the group still run
                    path.rmdir()


@dataclass(frozen=True)
class DriverGroup:
    """The control group of a driver. `kills_before`: earlier kills by the kernel in a reused group of this name."""

    path: Path
    kills_before: int = 0

    def exceeded_limit(self) -> int | None:
        """Return the limit in bytes if the kernel has ended the driver because of it."""
        if _count_kills(self.path) <= self.kills_before:
            return None
        text = _read(self.path / "memory.max").strip()
        return int(text) if text.isdigit() else None


class LimitedProcess:
    """A driver's process in its own control group."""

    def __init__(self, process: DriverProcess, group: DriverGroup, groups: DriverGroups) -> None:
        self._process = process
        self._group = group
        self._groups = groups

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def has_started(self) -> bool:
        return self._process.has_started

    @property
    def loss(self) -> Loss | None:
        return self._process.loss

    @property
    def left_nothing(self) -> bool:
        return self._process.left_nothing

    async def wait(self) -> int | None:
        return await self._process.wait()

    async def end(self, grace_s: float) -> None:
        await self._process.end(grace_s)
        self._groups.release(self._group)

    def last_log_lines(self) -> str:
        return self._process.last_log_lines()

    def exceeded_memory_limit(self) -> int | None:
        return self._group.exceeded_limit()


def _path_of(process: str, proc: Path) -> str | None:
    lines = _read(proc / process / "cgroup").splitlines()
    found = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    return found[0] if found else None


def _stat(entry: Path) -> list[str]:
    return (entry / "stat").read_text().rpartition(")")[2].split()


def _count_kills(group: Path) -> int:
    counts = dict(line.split() for line in _read(group / "memory.events").splitlines())
    return int(counts.get("oom_kill", 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _move(pid: str, group: Path) -> None:
    """Move a process. Do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(pid)
