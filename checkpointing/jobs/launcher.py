"""The interface of launchers, which start the drivers of jobs.

A driver outlives its job manager: it runs in a separate session, and the next job manager adopts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph


class LaunchFailed(Exception):
    """The driver's process could not be started. The text says why."""


@dataclass(frozen=True)
class Loss:
    """Why a driver was lost, as reported by the system that runs it. Name and message of the attempt's exception."""

    name: str
    message: str


class DriverProcess(Protocol):
    @property
    def pid(self) -> int | None:
        """Return the process ID, or None for a driver that is not a process of this machine."""
        ...

    @property
    def has_started(self) -> bool:
        """Return False while the driver waits for something outside itself, or while that is unknown."""
        ...

    @property
    def loss(self) -> Loss | None:
        """Return why the driver ended, if more than its exit code is known. Call it after `wait`."""
        ...

    async def wait(self) -> int | None:
        """Wait until the process has ended. Return its exit code: negative for a signal, None if unknown."""
        ...

    async def end(self, grace_s: float) -> None:
        """Ask the process to end, kill it after `grace_s`, and return when it is gone. It may already be gone."""
        ...

    @property
    def left_nothing(self) -> bool:
        """Return True if nothing of the driver can still run or write, because this job manager saw it end."""
        ...

    def last_log_lines(self) -> str: ...


@runtime_checkable
class MemoryLimited(Protocol):
    """A driver's process, or its substitute, that the kernel or a cluster may end because of its memory use."""

    def exceeded_memory_limit(self) -> int | None:
        """Return the memory limit in bytes if the process was ended because of it.

        Call it after the end. Blocks briefly.
        """
        ...


class DriverLauncher(Protocol):
    def check(self, graph: JobGraph) -> None:
        """Raise InvalidConfiguration if no driver of this job could ever start. Pure: it contacts no server."""
        ...

    def check_files(self, graph: JobGraph) -> None:
        """Raise InvalidConfiguration if a file that the job names is missing where its driver reads it. Blocks."""
        ...

    def demand_of(self, graph: JobGraph) -> Demand | None:
        """Return what the job's driver uses on this machine, or None if it runs elsewhere and is not limited here.

        Raise InvalidConfiguration if its settings do not say. Pure.
        """
        ...

    @property
    def spare_load(self) -> Load:
        """Return what spare drivers use on this machine now. Fast."""
        ...

    def limit_spares(self, room: Load) -> None:
        """Limit spare drivers to `room`. Those beyond it end soon. Fast."""
        ...

    def launch(self, spec: DriverSpec) -> DriverProcess:
        """Start the driver of `spec`. Raise LaunchFailed if that is impossible. Blocks briefly."""
        ...

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> str | None:
        """Return the pod in which the attempt's driver will run, as namespace/name, or None for a process. Pure."""
        ...

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DriverProcess | None:
        """Return the driver that a job manager started for this attempt, or None if it is gone or of another job.

        `pid` is a process of this machine, `pod` a result of `pod_of`. Blocks briefly. A pod that cannot be looked up
        now is adopted, because its driver may live.
        """
        ...

    def end_spares(self) -> None:
        """End all spare drivers and stop following drivers until the next `launch` or `adopt`: the term is over.

        Drivers of jobs continue. Blocks briefly.
        """
        ...
