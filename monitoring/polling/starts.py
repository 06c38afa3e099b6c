"""Starts of automatic restarts that are no runs: the engine refused them, or they have not run yet.

Flink finds out whether a state is there only when it starts the job, and then lists a job that FAILED. A row for it
would count as another life of the job, and as another death.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from monitoring.engine.answers import JobOverview
from monitoring.models import AttemptState, Cluster, RefusedStart, RestartAttempt, RestartTrigger

# Until the restart has concluded what became of its start: that it is refused, or that it ends the attempt.
_OPEN = (AttemptState.LAUNCHING, AttemptState.WAITING)
_HAS_NOT_RUN = ("INITIALIZING", "CREATED", "FAILED")


@dataclass(frozen=True)
class Starts:
    """`refused`: engine job ids. `awaited`: engine job ids and job names of restarts that are starting a job; an engine
    may give an id that nobody knows before the launch is over."""

    refused: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    def hide(self, job: JobOverview) -> bool:
        awaited = job.id in self.awaited or job.name in self.awaited
        return job.id in self.refused or (awaited and job.state in _HAS_NOT_RUN)


NO_STARTS = Starts()


def starts_among(cluster: Cluster, job_ids: Collection[str]) -> Starts:
    """The starts that concern these engine job ids."""
    if not job_ids:
        return NO_STARTS
    refused = RefusedStart.objects.filter(engine_job_id__in=job_ids, attempt__job__cluster=cluster)
    awaited = RestartAttempt.objects.filter(
        job__cluster=cluster, trigger=RestartTrigger.AUTOMATIC, state__in=_OPEN
    ).values_list("engine_job_id", "job__name")
    return Starts(
        frozenset(refused.order_by().values_list("engine_job_id", flat=True)),
        frozenset(word for each in awaited for word in each),
    )
