"""Extend a tick of recovery while a decision or step of a restart is due before the next tick.

For example, the end of a hold-down is handled immediately and not up to one tick later. This only saves time: if a
worker dies or another tick is still running, the next tick finds the work in the rows.
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

# How often this module checks whether the poller has read the last checkpoints of a dead run.
LOOK_EVERY = timedelta(milliseconds=100)

_extending = threading.Lock()


@dataclass(frozen=True)
class Awaited:
    """What the tick waits for.

    `soonest`: when the next decision or step is due, if known. `unread`: IDs of dead runs whose last checkpoints are
    not read yet; their decision follows as soon as these are read.
    """

    soonest: datetime | None
    unread: frozenset[int]


def tick(now: Callable[[], datetime], lasts: timedelta, wait: Callable[[float], None] = time.sleep) -> CycleReport:
    """Run cycles until the next tick comes after `lasts`. Return what all cycles did, and what the last one left."""
    until = now() + lasts
    reports = [advance(now())]
    if _extending.acquire(blocking=False):  # one extended tick is enough for this process
        try:
            _go_on(now, until, wait, reports)
        finally:
            _extending.release()
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
    """Return what is due after `now`. Work that was due before has been handled or waits for its turn."""
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
