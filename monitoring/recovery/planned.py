"""A tick of recovery goes on for as long as a decision or a step of a restart falls due before the next tick: the end
of a hold-down is looked at when it comes, not up to a tick later.

Only time is won by it. Whatever is missed here, because a worker dies or another tick goes on already, the next tick
finds in the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.models import Job, RestartAttempt
from monitoring.models.recovery import ENDED
from monitoring.reasons.report import CycleReport
from monitoring.recovery.cycle import advance
from monitoring.recovery.detection import DEAD, FINAL_READ, HOLD_DOWN

# How often it is looked whether the poller has read the last checkpoints of a dead run.
LOOK_EVERY = timedelta(milliseconds=100)

_goes_on = threading.Lock()


@dataclass(frozen=True)
class Awaited:
    """`soonest`: when the next decision or step is due, as far as that is known. `unread`: dead runs, by id, whose last
    checkpoints are being read; the decision on them follows at once."""

    soonest: datetime | None
    unread: frozenset[int]


def tick(now: Callable[[], datetime], lasts: timedelta, wait: Callable[[float], None] = time.sleep) -> CycleReport:
    """Return what all cycles did, and what the last one left. `lasts`: until another tick comes."""
    until = now() + lasts
    reports = [advance(now())]
    if _goes_on.acquire(blocking=False):  # one is enough for this process
        try:
            _go_on(now, until, wait, reports)
        finally:
            _goes_on.release()
    return CycleReport(tuple(done for report in reports for done in report.done), reports[-1].left)


def _go_on(
    now: Callable[[], datetime], until: datetime, wait: Callable[[float], None], reports: list[CycleReport]
) -> None:
    before = awaited(now())
    while (next_look := _next_look(before, now())) is not None and next_look < until:
        wait(max(0.0, (next_look - now()).total_seconds()))
        after = awaited(now())
        if before.unread - after.unread or (before.soonest is not None and before.soonest <= now()):
            reports.append(advance(now()))
            after = awaited(now())
        before = after


def _next_look(before: Awaited, now: datetime) -> datetime | None:
    moments = [before.soonest, now + LOOK_EVERY if before.unread else None]
    return min((at for at in moments if at is not None), default=None)


def awaited(now: datetime) -> Awaited:
    """What is due already has been looked at, or waits for its turn."""
    deaths = Job.objects.filter(
        auto_restart=True,
        managed_elsewhere="",
        current_run__state__in=DEAD,
        current_run__end_seen_at__gt=now - FINAL_READ,
        current_run__end_seen_at__lte=now,
    ).values_list("current_run", "current_run__end_seen_at", "current_run__final_read_done")
    seen = list(deaths)
    steps = RestartAttempt.objects.filter(claimed_until=None, next_step_at__gt=now).exclude(state__in=ENDED)
    moments = [at + HOLD_DOWN for _, at, _ in seen if at is not None]
    moments += [at for at in steps.values_list("next_step_at", flat=True) if at is not None]
    runs = Job.objects.filter(next_run_at__gt=now).order_by("next_run_at").values_list("next_run_at", flat=True)
    moments += [at for at in runs[:1] if at is not None]
    unread = frozenset(run for run, _, done in seen if run is not None and not done)
    return Awaited(min((at for at in moments if at > now), default=None), unread)
