"""A job whose attempts run in the test's process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkpointing.sinks import context
from checkpointing.sinks.conformance import PlayedJob, SnapshotOfOutput
from checkpointing.sinks.lineage import Lineage


class Job(PlayedJob):
    """A job with numbered attempts, for tests of which attempt may write."""

    def attempt(self, number: int, timeline: str = "A", *, restored: tuple[Lineage, int] | None = None) -> Lineage:
        """Begin attempt `number`, in the last attempt's timeline if that is `timeline`, else in a new one.

        `restored` is the lineage and the batch of the restored state. Without it, a new timeline starts empty.
        """
        self.number = number - 1
        if restored is None and self.lineage and self.lineage[-1].timeline.startswith(f"{timeline}-"):
            self.next_attempt()
        else:
            self.start(timeline, SnapshotOfOutput(*restored, restored[1]) if restored else None)
        return self.lineage


@pytest.fixture
def job() -> Iterator[Job]:
    yield Job()
    context._current = None
