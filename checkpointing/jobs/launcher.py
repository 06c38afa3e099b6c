"""What a job asks of whatever starts its drivers.

A driver outlives its job manager: it runs in a session of its own, and the next job manager adopts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from checkpointing.jobs.driver_spec import DriverSpec
from checkpointing.jobs.graph import JobGraph
from checkpointing.jobs.launching.admission import Demand, Load


class LaunchFailed(Exception):
    """The driver's process could not be started at all; the text says why."""


class DriverProcess(Protocol):
    @property
    def pid(self) -> int: ...

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

    def adopt(self, pid: int, job_id: str, attempt: int, work_directory: Path) -> DriverProcess | None:
        """The process that an earlier job manager started for this attempt, or None when it is gone or another one."""
        ...

    def end_spares(self) -> None:
        """No driver will be asked for until the next `launch`: nothing may wait for work. Blocking, short."""
        ...
