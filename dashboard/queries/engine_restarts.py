"""Where an engine restarted runs by itself: from a checkpoint, in local state, or with a new job manager."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import F, Q

from monitoring.models import RunState, RunStateChange

STARTING = timedelta(seconds=90)  # a run begins to run, with the state that it was given, within that time
MOST = 20  # a job that restarts in a loop has a tab of its own for that


def restarts_seen(
    runs: Collection[int], since: datetime, until: datetime, among: Q | None = None
) -> list[tuple[int, datetime]]:
    """Whenever one of `runs` (keys) was seen to run again: which, and when; newest first. Of several restarts between
    two looks one is seen."""
    again = RunStateChange.objects.filter(
        among or Q(),
        run__in=runs,
        target=RunState.RUNNING,
        at__range=(since, until),
        at__gt=F("run__started_at") + STARTING,
    )
    return list(again.order_by("-at").values_list("run_id", "at")[:MOST])
