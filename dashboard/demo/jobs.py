"""The two demo jobs: their programs and settings for the job manager, and their savepoints and recovery in Waymark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitoring.models import RestoreFrom

PROGRAMS = Path(__file__).parent / "programs"

_SETTINGS = {
    # Read each of the small input files with two tasks, as Spark would read a large file.
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
        # Other jobs restore the newest snapshot of any type. This one restores a savepoint, and replays more input.
        restore_from=RestoreFrom.SAVEPOINT,
        configuration={
            **_SETTINGS,
            # While the register is slow, a batch takes longer than this: the checkpoint expires, and the job continues.
            "execution.checkpointing.timeout": "6 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "100000",
            # The job manager restarts the job once. After the next failure the job is FAILED, and Waymark restarts it.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "2 s",
        },
    ),
)
