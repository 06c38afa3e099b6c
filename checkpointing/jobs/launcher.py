"""What a job asks of whatever starts its drivers.

A driver outlives its job manager: it runs in a session of its own, and the next job manager adopts it.
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
    """The driver's process could not be started at all; the text says why."""


@dataclass(frozen=True)
class Loss:
    """Why a driver was lost, as what runs it says: the name and the message of the attempt's exception."""

    name: str
    message: str


class DriverProcess(Protocol):
    @property
    def pid(self) -> int | None:
        """None for a driver that is no process of this machine."""
        ...

    @property
    def has_started(self) -> bool:
        """False while the driver waits for something else than itself, and while nobody can say whether it does."""
        ...

    @property
    def loss(self) -> Loss | None:
        """After `wait`: why the driver ended, where more than its exit code is known."""
        ...

    async def wait(self) -> int | None:
        """Return when the process has ended: its exit code, negative for a signal, None when it is not known."""
        ...

    async def end(self, grace_s: float) -> None:
        """Ask it to end, kill it after `grace_s`, return when it is gone. A process that is gone already is fine."""
        ...

    @property
    def left_nothing(self) -> bool:
        """True once it is certain that nothing of the driver runs or writes any more: this job manager saw it end."""
        ...

    def last_log_lines(self) -> str: ...


@runtime_checkable
class MemoryLimited(Protocol):
    """A driver's process, or what stands for it, that somebody else may end because of the memory that it takes."""

    def exceeded_memory_limit(self) -> int | None:
        """Return its limit in bytes if it was ended because of it. Blocking, short; asked once it has ended."""
        ...


class DriverLauncher(Protocol):
    def check(self, graph: JobGraph) -> None:
        """InvalidConfiguration when no driver of this job could ever start. Pure: nothing is asked of any server."""
        ...

    def check_files(self, graph: JobGraph) -> None:
        """InvalidConfiguration when a file that the job names is missing where its driver gets it. Blocking."""
        ...

    def demand_of(self, graph: JobGraph) -> Demand | None:
        """Return what the job's driver takes of this machine; None: it runs elsewhere, and is not limited here.

        InvalidConfiguration when its settings do not say. Pure.
        """
        ...

    @property
    def spare_load(self) -> Load:
        """Return what spare drivers take of this machine now. Cheap."""
        ...

    def leave_to_spares(self, room: Load) -> None:
        """Let spare drivers take no more than `room`: those beyond it end soon. Cheap."""
        ...

    def launch(self, spec: DriverSpec) -> DriverProcess:
        """Start the driver of `spec`. Blocking, short; LaunchFailed when that is impossible."""
        ...

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> str | None:
        """Return the pod that the attempt's driver will run in, as namespace/name; None for a process. Pure."""
        ...

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DriverProcess | None:
        """Return the driver that a job manager started for this attempt, None when it is gone or another one's.

        `pid` is a process of this machine, `pod` what `pod_of` said. Blocking, short. A pod that cannot be looked up
        now is adopted, because its driver may live.
        """
        ...

    def end_spares(self) -> None:
        """Let nothing wait for work, and follow no driver: the term is over, until the next `launch` or `adopt`.

        Drivers go on. Blocking, short.
        """
        ...
