"""The two demo jobs: what is submitted to the job manager, and how Waymark looks after each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitoring.models import RestoreFrom

PROGRAMS = Path(__file__).parent / "programs"

_SETTINGS = {
    # The input comes in small files: read each with two tasks, as a big one would be.
    "spark.sql.files.openCostInBytes": "4096",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.num-retained": "3",
}


@dataclass(frozen=True)
class DemoJob:
    name: str
    program: str
    entry_class: str
    savepoint_every_s: int
    restore_from: RestoreFrom = RestoreFrom.NEWEST
    configuration: Mapping[str, str] = field(default_factory=dict)
    parallelism: int = 2

    @property
    def program_path(self) -> Path:
        return PROGRAMS / self.program


DEMO_JOBS = (
    DemoJob(
        name="Flights by aircraft and route",
        program="flights_by_route.py",
        entry_class="flights_by_route:flights_by_route",
        savepoint_every_s=300,
        configuration={
            **_SETTINGS,
            "execution.checkpointing.timeout": "60 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "10",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "10",
            "restart-strategy.fixed-delay.delay": "5 s",
        },
    ),
    DemoJob(
        name="Seats by manufacturer",
        program="aircraft_seats.py",
        entry_class="aircraft_seats:aircraft_seats",
        savepoint_every_s=120,
        # Shows the other choice: back to the newest savepoint, and the input since then once more.
        restore_from=RestoreFrom.SAVEPOINT,
        configuration={
            **_SETTINGS,
            # A batch that waits for a slow register outlasts this: the checkpoint expires, and the job goes on.
            "execution.checkpointing.timeout": "6 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "100000",
            # One restart by the job manager; when it fails again the job is FAILED, and bringing it back is Waymark's.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "2 s",
        },
    ),
)
