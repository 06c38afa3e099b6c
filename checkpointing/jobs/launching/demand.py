"""Computes how much memory of this machine a driver needs.

    heap       spark.driver.memory (768m unless set)
    overhead   spark.driver.memoryOverhead, else spark.driver.memoryOverheadFactor (0.1) of the heap, at least
               spark.driver.minMemoryOverhead (384m): Spark's own rule. The driver's Python is part of it
    workers    128 MiB for each task that runs in the driver at a time: `n` of a master local[n], none on a cluster

`waymark.driver.memory` replaces the sum. Measured with the defaults: 0.9 to 1.1 GB for two tasks; the sum is 1.4 GB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.deployment import ClusterManager, Deployment
from checkpointing.jobs.launching.session_settings import DRIVER_MEMORY
from checkpointing.model.configuration import InvalidConfiguration, memory_bytes

MEMORY = "waymark.driver.memory"
HEAP, OVERHEAD = "spark.driver.memory", "spark.driver.memoryOverhead"
FACTOR, LEAST_OVERHEAD = "spark.driver.memoryOverheadFactor", "spark.driver.minMemoryOverhead"
MIB = 2**20
_WORKER_BYTES = 128 * MIB
_SPARK_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


def demand_of(configuration: Mapping[str, str], deployment: Deployment) -> Demand | None:
    """Return the demand, or None for a driver elsewhere. Raise InvalidConfiguration, which names the wrong key."""
    if deployment.driver_is_in_the_cluster:
        return None
    requested = requested_memory(configuration)
    return Demand(requested or heap_and_overhead(configuration) + _tasks_in(deployment) * _WORKER_BYTES)


def requested_memory(configuration: Mapping[str, str]) -> int | None:
    """Return the value of `waymark.driver.memory` in bytes, or None if it is not set. Raise InvalidConfiguration."""
    if MEMORY not in configuration:
        return None
    requested = memory_bytes(MEMORY, configuration[MEMORY])
    if requested < MIB:
        raise InvalidConfiguration(MEMORY, configuration[MEMORY], "at least 1mb")
    return requested


def heap_and_overhead(configuration: Mapping[str, str], factor_key: str = FACTOR, default_factor: str = "0.1") -> int:
    """Return the memory that Spark counts for a driver, in bytes. Raise InvalidConfiguration."""
    heap = _size(configuration, HEAP, DRIVER_MEMORY, least=1)
    return heap + _overhead(configuration, heap, factor_key, default_factor)


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _overhead(configuration: Mapping[str, str], heap: int, factor_key: str, default_factor: str) -> int:
    least = _size(configuration, LEAST_OVERHEAD, "384m")
    if OVERHEAD in configuration:
        return _size(configuration, OVERHEAD, "")
    text = configuration.get(factor_key, default_factor).strip()
    if not re.fullmatch(r"\d*\.?\d+", text):
        raise InvalidConfiguration(factor_key, text, "a number, at least 0, such as 0.2")
    return max(round(heap * float(text)), least)


def _size(configuration: Mapping[str, str], key: str, default: str, *, least: int = 0) -> int:
    """Read a size as Spark does for these keys: a whole number, in MiB if it has no unit."""
    text = configuration.get(key, default).strip()
    match = re.fullmatch(r"(\d+)(?:(b)|([kmgtp])b?)?", text.lower())
    if match is None or int(match[1]) < least:
        raise InvalidConfiguration(key, text, f"a whole number, at least {least}, and a unit, such as 512m or 2g")
    return int(match[1]) * _SPARK_UNITS[match[2] or match[3] or "m"]


def _tasks_in(deployment: Deployment) -> int:
    """Return how many tasks run at a time in the driver's own process and its Python workers."""
    if deployment.manager is not ClusterManager.LOCAL:
        return 0
    match = re.match(r"local\[(\d+|\*)", deployment.master)
    if match is None:
        return 1
    return len(os.sched_getaffinity(0)) if match[1] == "*" else int(match[1])
