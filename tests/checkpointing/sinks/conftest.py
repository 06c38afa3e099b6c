"""The attempts of a job that this process plays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkpointing.sinks import context
from checkpointing.sinks.conformance import PlayedJob, SnapshotOfOutput
from checkpointing.sinks.lineage import Lineage


class Job(PlayedJob):
    """With attempts by their numbers, for tests of who may write."""

    def attempt(self, number: int, timeline: str = "A", *, restored: tuple[Lineage, int] | None = None) -> Lineage:
        """Be attempt `number`, in the timeline of the last one when that is `timeline`, else in a new one.

        `restored` is a state: the lineage that it was made by, and its batch. Without one a new timeline starts empty.
        """
        self.number = number - 1
        if restored is None and self.lineage and self.lineage[-1].timeline.startswith(f"{timeline}-"):
            self.go_on()
        else:
            self.start(timeline, SnapshotOfOutput(*restored, restored[1]) if restored else None)
        return self.lineage


@pytest.fixture
def job() -> Iterator[Job]:
    yield Job()
    context._current = None
