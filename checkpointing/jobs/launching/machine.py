"""Reads how much memory and how many processors of this machine drivers may use.

Control groups limit this process in a container and in a systemd unit (`MemoryMax=`). The limits of a group and of all
groups above it count, in version 2 (`memory.max`, `cpu.max`) and in version 1 (`memory.limit_in_bytes`,
`cpu.cfs_quota_us`).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpointing.jobs.launching.admission import Limits

_GIB = 2**30
# Reserved for the operating system, the job manager, and the other processes of `manage.py up`.
_RESERVED_SHARE, _RESERVED_LEAST = 0.1, _GIB
_STARTS_PER_PROCESSOR = 2


@dataclass(frozen=True)
class Machine:
    """A machine's resources. `memory` is in bytes."""

    memory: int
    processors: int


def limits_of(machine: Machine, memory: int | None, drivers: int | None, starting: int | None) -> Limits:
    """Return the limits of the drivers on `machine`: those given, else the defaults.

    0 for `memory` or `drivers` means no limit. A start computes for about 10 s, mostly on one processor, and waits for
    the disk in between. So two starts keep a processor busy, and with more starts, each would only take longer. With
    the default number, a start takes a sixth of the time that a driver has to register.
    """
    reserved = max(_RESERVED_LEAST, round(machine.memory * _RESERVED_SHARE))
    free = max(machine.memory - reserved, machine.memory // 2)  # even a small machine must run drivers
    return Limits(
        memory=(free if memory is None else memory) or None,
        drivers=drivers or None,
        starting=starting or _STARTS_PER_PROCESSOR * machine.processors,
    )


def read_machine(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Machine:
    """Return what this process may use. Reads files."""
    own = list(_groups_of(proc, groups))
    memory = [limit for group in own for limit in _memory_limits(group)]
    quotas = [quota for group in own for quota in _processor_quotas(group)]
    processors = min([float(len(os.sched_getaffinity(0))), *quotas])
    return Machine(min([_total_memory(proc), *memory]), max(1, math.ceil(processors)))


def _total_memory(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{proc / 'meminfo'} has no line MemTotal")


def _groups_of(proc: Path, groups: Path) -> Iterator[Path]:
    """Yield the directories of this process's control groups and of their parents, as far as they are mounted here.

    A container often sees its own group as the root of the mount, while /proc names it by its path on the host.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [groups, groups / "unified"]
        elif {"memory", "cpu"} & set(controllers.split(",")):
            roots = [groups / controllers]
        else:
            continue
        for root in roots:
            yield root
            group = root
            for name in filter(None, path.split("/")):
                group = group / name
                yield group


def _memory_limits(group: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # the value "max" means no limit
            yield int((group / name).read_text())


def _processor_quotas(group: Path) -> Iterator[float]:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        yield int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            yield quota_us / int((group / "cpu.cfs_period_us").read_text())
