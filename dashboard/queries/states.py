"""The states that a job can be started from: its completed savepoints, and the checkpoints that outlive their run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.models import CheckedState, Checkpoint, Job
from monitoring.recovery.states import retained_checkpoints

# An engine keeps a handful; of older ones it is not known whether they are still there.
RETAINED = 10


@dataclass(frozen=True)
class Retained:
    """A retained checkpoint, and what was found when its files were last looked at."""

    checkpoint: Checkpoint
    checked_at: datetime | None = None
    problem: str = ""


def read_retained(job: Job) -> list[Retained]:
    """The newest first; runs and their launch versions are read with them."""
    found = list(retained_checkpoints(job).select_related("run__launch_version")[:RETAINED])
    looks = {look.path: look for look in job.checked_states.filter(path__in=[each.external_path for each in found])}
    return [_retained(each, looks.get(each.external_path)) for each in found]


def _retained(checkpoint: Checkpoint, look: CheckedState | None) -> Retained:
    return Retained(checkpoint, look.checked_at, look.problem) if look else Retained(checkpoint)
