"""A control group for each driver, in a directory that simulates the kernel's.

Therefore the tests need no real control groups of version 2 with the memory controller.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.launcher import Loss
from checkpointing.jobs.launching import control_groups
from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.control_groups import (
    DriverGroups,
    LimitedProcess,
    NoGroups,
    delegated_group,
    limit_of,
)
from checkpointing.model.configuration import InvalidConfiguration

GIB = 2**30
SERVICE = "system.slice/waymark.service"


class Kernel:
    """A simulation of /proc and the control groups. A process that is written into a group leaves its former one."""

    def __init__(self, root: Path) -> None:
        self.proc, self.mount = root / "proc", root / "cgroup"
        self.service = self.mount / SERVICE
        self.service.mkdir(parents=True)
        for group in (self.mount, self.service):
            (group / "cgroup.controllers").write_text("cpu memory pids\n")
            (group / "cgroup.procs").write_text("")

    def start(self, pid: int, group: str = SERVICE, session: int | None = None) -> None:
        process = self.proc / str(pid)
        process.mkdir(parents=True)
        (process / "stat").write_text(f"{pid} (py (x) thon) S 1 {pid} {session or pid} 0 -1\n")
        self.move(str(pid), self.mount / group)

    def end(self, pid: int) -> None:
        for path in (self.proc / str(pid)).iterdir():
            path.unlink()
        (self.proc / str(pid)).rmdir()
        self.move(str(pid), None)

    def move(self, pid: str, group: Path | None) -> None:
        for procs in self.mount.rglob("cgroup.procs"):
            procs.write_text("".join(f"{line}\n" for line in procs.read_text().split() if line != pid))
        if group is None or not (self.proc / pid).exists():
            return
        procs = group / "cgroup.procs"
        procs.write_text(f"{procs.read_text() if procs.exists() else ''}{pid}\n")
        (self.proc / pid / "cgroup").write_text(f"3:cpu:/other\n0::/{group.relative_to(self.mount)}\n")

    def members(self, group: str) -> list[str]:
        return (self.service / group / "cgroup.procs").read_text().split()

    def kill_for_memory(self, group: str, times: int) -> None:
        (self.service / group / "memory.events").write_text(f"low 0\nmax 9\noom {times}\noom_kill {times}\n")

    def delegated(self, pid: int, uid: int = 1000) -> Path | NoGroups:
        return delegated_group(str(pid), self.proc, self.mount, uid)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path)
    monkeypatch.setattr(control_groups, "_move", kernel.move)

    def remove(path: Path, real: Any = Path.rmdir) -> None:
        """Remove a control group with its files, as the kernel does if the group has no process."""
        if kernel.mount in path.parents:
            if (path / "cgroup.procs").exists() and (path / "cgroup.procs").read_text().split():
                raise OSError(16, "Device or resource busy")
            for file in path.iterdir():
                file.unlink()
        real(path)

    monkeypatch.setattr(Path, "rmdir", remove)
    return kernel


@pytest.fixture
def groups(kernel: Kernel) -> DriverGroups:
    kernel.start(10)
    groups = DriverGroups(kernel.service, kernel.proc)
    groups.prepare()
    return groups


# --- whether groups are available ---


def test_the_group_of_a_service_that_is_delegated_is_found(kernel: Kernel) -> None:
    kernel.start(10)

    assert kernel.delegated(10) == kernel.service


def test_the_group_of_a_driver_is_derived_from_that_of_the_job_manager(kernel: Kernel, groups: DriverGroups) -> None:
    assert kernel.members("waymark") == ["10"]

    assert kernel.delegated(10) == kernel.service


def test_hierarchy_of_version_2_next_to_version_1_is_found(kernel: Kernel, tmp_path: Path) -> None:
    kernel.start(10)
    kernel.mount.rename(tmp_path / "unified")

    assert delegated_group("10", kernel.proc, tmp_path, 1000) == tmp_path / "unified" / SERVICE


def test_missing_control_groups_are_explained(kernel: Kernel) -> None:
    kernel.start(10)
    (kernel.mount / "user.slice").mkdir()
    kernel.start(11, "user.slice")

    assert kernel.delegated(12) is NoGroups.NO_VERSION_2
    assert kernel.delegated(11) is NoGroups.NO_SERVICE
    assert kernel.delegated(10, uid=0) is NoGroups.IS_ROOT
    (kernel.service / "cgroup.controllers").write_text("cpu pids\n")
    assert kernel.delegated(10) is NoGroups.NO_MEMORY
    (kernel.mount / "cgroup.controllers").unlink()
    assert kernel.delegated(10) is NoGroups.NO_VERSION_2


def test_a_group_that_may_not_be_written_is_not_delegated(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.start(10)
    monkeypatch.setattr(control_groups.os, "access", lambda path, mode: False)

    assert kernel.delegated(10) is NoGroups.NOT_DELEGATED


# --- dividing the service's group ---


def test_all_processes_leave_the_service_before_it_is_divided(kernel: Kernel) -> None:
    for pid in (10, 11, 12):
        kernel.start(pid)

    DriverGroups(kernel.service, kernel.proc).prepare()

    assert kernel.members("waymark") == ["10", "11", "12"]
    assert (kernel.service / "cgroup.procs").read_text() == ""
    assert (kernel.service / "cgroup.subtree_control").read_text() == "+memory"


def test_a_driver_and_what_it_has_started_are_limited(kernel: Kernel, groups: DriverGroups) -> None:
    kernel.start(100)
    kernel.start(101, session=100)
    kernel.start(200)

    groups.place(100, 2 * GIB)

    assert kernel.members("driver-100") == ["100", "101"]
    group = kernel.service / "driver-100"
    assert (group / "memory.max").read_text() == str(2 * GIB)
    assert (group / "memory.oom.group").read_text() == "1"


def test_a_driver_that_the_kernel_killed_for_memory_is_reported_with_its_limit(
    kernel: Kernel, groups: DriverGroups
) -> None:
    kernel.start(100)
    group = groups.place(100, 2 * GIB)
    assert group.exceeded_limit() is None

    kernel.kill_for_memory("driver-100", 3)

    assert group.exceeded_limit() == 2 * GIB


def test_memory_kill_of_an_earlier_process_with_that_pid_does_not_count(kernel: Kernel, groups: DriverGroups) -> None:
    (kernel.service / "driver-100").mkdir()
    kernel.kill_for_memory("driver-100", 1)
    kernel.start(100)

    assert groups.place(100, GIB).exceeded_limit() is None


def test_a_spare_that_becomes_an_attempt_keeps_its_group_with_the_limit_of_the_attempt(
    kernel: Kernel, groups: DriverGroups
) -> None:
    """The kernel counts memory in the group in which it was allocated."""
    kernel.start(100)
    groups.release(groups.place(100, GIB))

    groups.place(100, 3 * GIB)

    assert (kernel.service / "driver-100" / "memory.max").read_text() == str(3 * GIB)


def test_an_empty_unused_group_is_removed(kernel: Kernel, groups: DriverGroups) -> None:
    kernel.start(100)
    group = groups.place(100, GIB)
    kernel.end(100)
    kernel.start(200)
    groups.place(200, GIB)
    assert group.path.exists(), "why the driver ended has not been asked"

    groups.release(group)
    groups.place(200, GIB)

    assert not group.path.exists()


def test_a_group_with_a_live_process_is_kept(kernel: Kernel, groups: DriverGroups) -> None:
    kernel.start(100)
    kernel.start(101, session=100)
    groups.release(groups.place(100, GIB))
    kernel.end(100)
    kernel.start(200)

    groups.place(200, GIB)

    assert kernel.members("driver-100") == ["101"]


def test_the_next_job_manager_finds_the_group_of_a_driver(kernel: Kernel, groups: DriverGroups) -> None:
    kernel.start(100)
    groups.place(100, GIB)
    next_one = DriverGroups(kernel.service, kernel.proc)
    next_one.prepare()

    found = next_one.of(100)
    assert next_one.of(999) is None
    kernel.kill_for_memory("driver-100", 1)

    assert found is not None
    assert found.exceeded_limit() == GIB


async def test_the_group_is_removed_when_its_process_was_ended(kernel: Kernel, groups: DriverGroups) -> None:
    class Process:
        pid, has_started, left_nothing = 100, True, True
        loss = Loss("DriverLost", "why")

        async def wait(self) -> int | None:
            await asyncio.sleep(0)
            return -signal.SIGKILL

        async def end(self, grace_s: float) -> None:
            kernel.end(self.pid)

        def last_log_lines(self) -> str:
            return "its log"

    kernel.start(100)
    process = LimitedProcess(Process(), groups.place(100, GIB), groups)
    kernel.kill_for_memory("driver-100", 1)
    assert (await process.wait(), process.exceeded_memory_limit()) == (-signal.SIGKILL, GIB)
    assert (process.pid, process.has_started, process.left_nothing) == (100, True, True)
    assert (process.loss, process.last_log_lines()) == (Loss("DriverLost", "why"), "its log")

    await process.end(1.0)
    kernel.start(200)
    groups.place(200, GIB)

    assert not (kernel.service / "driver-100").exists()


# --- the limit ---


def test_the_limit_is_twice_the_memory_of_the_driver_unless_it_is_set() -> None:
    assert limit_of({}, Demand(GIB)) == 2 * GIB
    assert limit_of({"waymark.driver.memory-limit": "5gb"}, Demand(GIB)) == 5 * GIB


@pytest.mark.parametrize("text", ["much", "1023mb"])
def test_an_invalid_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        limit_of({"waymark.driver.memory-limit": text}, Demand(GIB))

    assert refused.value.key == "waymark.driver.memory-limit"
