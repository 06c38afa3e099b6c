"""When an engine restarted a run by itself: from a checkpoint, from local state, or with a new job manager."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q

from monitoring.models import RunState, RunStateChange

STARTING = timedelta(seconds=90)  # a run begins to run, with the state that it was given, within that time
MOST = 20  # a job that restarts in a loop has a tab of its own for that


def restarts_seen(
    runs: Collection[int], since: datetime, until: datetime, among: Q | None = None
) -> list[tuple[int, datetime]]:
    """Return (key of the run, time) of each restart of `runs` (keys), newest first.

    A run restarts when it becomes RUNNING after it was RUNNING before, or after RESTARTING. The first sight of a run
    (its change has no source) is no restart, however long the run had been running. Several restarts between two polls
    count as one.
    """
    changes = RunStateChange.objects.filter(run__in=runs, target=RunState.RUNNING)
    ran_before = changes.filter(run=OuterRef("run"), id__lt=OuterRef("id"))
    again = changes.filter(
        among or Q(),
        Q(source=RunState.RESTARTING) | Exists(ran_before),
        at__range=(since, until),
        at__gt=F("run__started_at") + STARTING,
    ).exclude(source="")
    return list(again.order_by("-at").values_list("run_id", "at")[:MOST])
