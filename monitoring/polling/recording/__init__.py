"""Store other parts of an observation: counters, exceptions and configuration.

Each needs a constant number of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from monitoring.models import Run
from monitoring.polling.observation import RunObservation
from monitoring.polling.recording import configuration, counters, exceptions

Seen = Sequence[tuple[Run, RunObservation]]


def record(seen: Seen, now: datetime) -> None:
    """Store these parts. Call this in the transaction that stores the observation, after the runs have rows."""
    counters.record(seen, now)
    exceptions.record(seen)
    configuration.record(seen, now)
