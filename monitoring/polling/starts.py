"""Find starts of automatic restarts that must not be stored as runs: the engine refused them or they have not run yet.

Flink checks a snapshot only when it starts the job, and then lists a FAILED job. A row for it would count as another
run and another failure of the job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from monitoring.engine.answers import JobOverview
from monitoring.models import AttemptState, Cluster, RefusedStart, RestartAttempt, RestartTrigger

# The states in which the restart does not know the result of its start yet.
_OPEN = (AttemptState.LAUNCHING, AttemptState.WAITING)
_HAS_NOT_RUN = ("INITIALIZING", "CREATED", "FAILED")


@dataclass(frozen=True)
class Starts:
    """Starts that are not runs.

    `refused`: engine job IDs. `awaited`: engine job IDs and job names of restarts that are starting a job, because an
    engine may choose an ID that is unknown until the launch returns.
    """

    refused: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    def hide(self, job: JobOverview) -> bool:
        awaited = job.id in self.awaited or job.name in self.awaited
        return job.id in self.refused or (awaited and job.state in _HAS_NOT_RUN)


NO_STARTS = Starts()


def starts_among(cluster: Cluster, job_ids: Collection[str]) -> Starts:
    """Return the starts that concern these engine job IDs."""
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
