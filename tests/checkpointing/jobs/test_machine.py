"""The resources that a machine has for drivers, read from files that simulate /proc and the control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointing.jobs.launching.machine import Machine, limits_of, read_machine

GIB = 2**30
PROCESSORS = len(os.sched_getaffinity(0))


class Files:
    def __init__(self, root: Path) -> None:
        self.proc, self.groups = root / "proc", root / "cgroup"
        self.write(self.proc / "meminfo", f"MemTotal:       {16 * GIB // 1024} kB\nMemFree: 1 kB\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def own_group(self, *lines: str) -> None:
        self.write(self.proc / "self" / "cgroup", "".join(f"{line}\n" for line in lines))

    def read(self) -> Machine:
        return read_machine(self.proc, self.groups)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_control_groups_all_of_the_machine_counts(files: Files) -> None:
    assert files.read() == Machine(16 * GIB, PROCESSORS)


def test_a_limit_of_version_2_counts(files: Files) -> None:
    files.own_group("0::/system.slice/waymark.service")
    files.write(files.groups / "system.slice" / "waymark.service" / "memory.max", f"{4 * GIB}\n")

    assert files.read().memory == 4 * GIB


def test_the_least_limit_of_all_groups_above_counts(files: Files) -> None:
    files.own_group("0::/system.slice/waymark.service")
    files.write(files.groups / "system.slice" / "waymark.service" / "memory.max", "max\n")
    files.write(files.groups / "system.slice" / "memory.max", f"{3 * GIB}\n")

    assert files.read().memory == 3 * GIB


def test_a_container_that_sees_its_group_as_the_root_is_limited(files: Files) -> None:
    files.own_group("0::/docker/0123456789ab")
    files.write(files.groups / "memory.max", f"{2 * GIB}\n")

    assert files.read().memory == 2 * GIB


def test_a_limit_of_version_1_counts(files: Files) -> None:
    files.own_group("5:devices:/a", "4:memory:/app", "1:cpu,cpuacct:/app")
    files.write(files.groups / "memory" / "app" / "memory.limit_in_bytes", f"{5 * GIB}\n")
    files.write(files.groups / "devices" / "a" / "memory.limit_in_bytes", "1\n")

    assert files.read().memory == 5 * GIB


def test_a_limit_above_the_memory_of_the_machine_is_ignored(files: Files) -> None:
    files.own_group("4:memory:/app")
    files.write(files.groups / "memory" / "app" / "memory.limit_in_bytes", "9223372036854771712\n")

    assert files.read().memory == 16 * GIB


def test_a_quota_of_processors_counts(files: Files) -> None:
    files.own_group("0::/app")
    files.write(files.groups / "app" / "cpu.max", "50000 100000\n")

    assert files.read().processors == 1


def test_a_quota_of_version_1_counts_and_none_does_not(files: Files) -> None:
    files.own_group("1:cpu,cpuacct:/app")
    files.write(files.groups / "cpu,cpuacct" / "app" / "cpu.cfs_quota_us", "-1\n")
    files.write(files.groups / "cpu,cpuacct" / "app" / "cpu.cfs_period_us", "100000\n")
    assert files.read().processors == PROCESSORS

    files.write(files.groups / "cpu,cpuacct" / "app" / "cpu.cfs_quota_us", "100000\n")
    assert files.read().processors == 1


def test_a_tenth_of_the_memory_and_at_least_a_gigabyte_is_reserved() -> None:
    assert limits_of(Machine(100 * GIB, 8), None, None, None).memory == 90 * GIB
    assert limits_of(Machine(4 * GIB, 8), None, None, None).memory == 3 * GIB


def test_half_of_a_small_machine_is_for_drivers() -> None:
    assert limits_of(Machine(GIB, 1), None, None, None).memory == GIB // 2


def test_by_default_two_drivers_start_for_each_processor_and_their_number_is_not_limited() -> None:
    limits = limits_of(Machine(100 * GIB, 8), None, None, None)

    assert (limits.starting, limits.drivers) == (16, None)


def test_settings_override_derived_limits_and_zero_is_not_a_limit() -> None:
    given = limits_of(Machine(100 * GIB, 8), 5 * GIB, 7, 3)
    assert (given.memory, given.drivers, given.starting) == (5 * GIB, 7, 3)

    unlimited = limits_of(Machine(100 * GIB, 8), 0, 0, None)
    assert (unlimited.memory, unlimited.drivers) == (None, None)
