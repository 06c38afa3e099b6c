"""What an observation says beside checkpoints and states, written with it: each in a constant number of statements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from monitoring.models import Run
from monitoring.polling.observation import RunObservation
from monitoring.polling.recording import configuration, counters, exceptions

Seen = Sequence[tuple[Run, RunObservation]]


def record(seen: Seen, now: datetime) -> None:
    """Call it in the transaction that stores the observation, once the runs have their rows."""
    counters.record(seen, now)
    exceptions.record(seen)
    configuration.record(seen, now)
