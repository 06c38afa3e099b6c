"""A Spark session whose frames go into the sinks, and the attempts of a job that this process plays."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.sinks import context
from checkpointing.sinks.context import SinkContext, set_current
from checkpointing.sinks.lineage import Lineage, begin
from checkpointing.spark.session import WorkDirectory, session_settings, start_session

QUERY = "query"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[Any]:
    work = WorkDirectory(tmp_path_factory.mktemp("sinks"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = {**session_settings(work, 2, {}), "spark.eventLog.enabled": "false"}
    session = start_session("sinks", settings, work)
    yield session
    session.stop()


@dataclass
class Job:
    """Plays the attempts of one job: what the driver does with a lineage, without a driver."""

    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    lineage: Lineage = ()

    def attempt(self, number: int, timeline: str = "A", *, restored: tuple[Lineage, int] | None = None) -> Lineage:
        """Be attempt `number`; it writes `timeline`, of which each test has its own.

        `restored` is a snapshot: the lineage that it was taken in, and its batch. Without one the attempt goes on in
        the timeline when that is the last one's, else it starts empty.
        """
        name = f"{timeline} of {self.job_id}"
        found, batch = restored or (self.lineage, None)
        started_empty = restored is None and (not found or found[-1].timeline != name)
        self.lineage = begin(() if started_empty else found, name, batch)
        batches = {} if batch is None else {QUERY: batch}
        set_current(SinkContext(self.job_id, number, name, batches, {QUERY: self.lineage}))
        return self.lineage


@pytest.fixture
def job() -> Iterator[Job]:
    yield Job()
    context._current = None
