"""Figures of one batch that the agent or an event log has reported. Only the newest batches of a run have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.models import REPORTED_DISCOVERIES, Job, ReportedBatch, ReportedRun, Run


@dataclass(frozen=True)
class BatchFigures:
    """`phases` are durations in milliseconds by Spark's name, longest first, without their sum. None: not reported."""

    number: int
    run: ReportedRun
    progress: Mapping[str, Any]

    @property
    def phases(self) -> list[tuple[str, int]]:
        found = {name: ms for name, ms in self.progress["durationMs"].items() if name != "triggerExecution"}
        return sorted(found.items(), key=lambda each: -each[1])

    @property
    def operators(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.progress["stateOperators"]
        return found


def read_batch(job: Job, run: Run | None, number: int | None = None) -> BatchFigures | None:
    """Return the figures of a batch (None: the newest one), or None if they are not known or no longer kept."""
    if run is None or job.cluster.discovery not in REPORTED_DISCOVERIES:
        return None
    rows = ReportedBatch.objects.filter(run__cluster=job.cluster_id, run__run_id=run.engine_job_id)
    if number is not None:
        rows = rows.filter(batch_id=number)
    found = rows.select_related("run").order_by("-batch_id").first()
    return None if found is None else BatchFigures(found.batch_id, found.run, found.progress)
