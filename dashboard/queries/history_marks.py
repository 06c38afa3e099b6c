"""The lines between the rows of the history: starts and ends of runs, and restarts by the engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q

from dashboard.queries.facts import select
from monitoring.models import WATCHED_DISCOVERIES, Checkpoint, Job, Run, RunState, RunStateChange

MOST_MARKS = 20  # the limit for a page; the restarts of a job that restarts in a loop have their own tab
STARTING = timedelta(seconds=90)  # within this time after its start, a run restores its state and becomes RUNNING


@dataclass(frozen=True)
class Mark:
    """The heading of a run or, with `restarted_at`, a restart of the run by the engine.

    `times` counts restarts that no poll saw, between two polls of which `restarted_at` is the second.
    """

    run: Run
    restarted_at: datetime | None = None
    times: int = 0


@dataclass(frozen=True)
class Marks:
    """The marks of a page: those `above` each checkpoint, by its key, and those `below` the last checkpoint."""

    above: dict[int, tuple[Mark, ...]] = field(default_factory=dict)
    below: tuple[Mark, ...] = ()


def marks_of(job: Job, checkpoints: Sequence[Checkpoint], whole: bool, is_newest: bool, is_oldest: bool) -> Marks:
    """Return the marks of a page of checkpoints, newest first.

    Args:
        whole: no filter hides checkpoints between the rows. Then the marks include runs without a checkpoint and
            restarts by the engine.
        is_newest: the page is the newest of the history, so marks after its first checkpoint are included.
        is_oldest: the page is the oldest of the history, so marks before its last checkpoint are included.
    """
    if not checkpoints:
        return Marks()
    placed = _between(job, checkpoints, is_newest, is_oldest) if whole else []
    above: dict[int, tuple[Mark, ...]] = {}
    run = None
    for each in checkpoints:
        later = [mark for at, mark in placed if at > each.triggered_at]
        placed = [(at, mark) for at, mark in placed if at <= each.triggered_at]
        heading = [Mark(each.run)] if each.run_id != run else []
        above[each.pk] = (*later, *heading)
        run = each.run_id
    return Marks(above, tuple(mark for _, mark in placed))


def _between(
    job: Job, checkpoints: Sequence[Checkpoint], is_newest: bool, is_oldest: bool
) -> list[tuple[datetime, Mark]]:
    """Return the runs without a checkpoint and the engine's restarts, newest first."""
    newest = None if is_newest else checkpoints[0].triggered_at
    oldest = None if is_oldest else checkpoints[-1].triggered_at
    silent = _runs_without_rows(job, {each.run_id for each in checkpoints}, oldest, newest)
    restarts = _restarts(checkpoints, newest)
    return sorted([*silent, *restarts], key=lambda placed: placed[0], reverse=True)


def _runs_without_rows(
    job: Job, shown: set[int], oldest: datetime | None, newest: datetime | None
) -> list[tuple[datetime, Mark]]:
    runs = job.runs.exclude(pk__in=shown).exclude(checkpoints__isnull=False)
    runs = runs.filter(started_at__gt=oldest) if oldest else runs
    runs = runs.filter(started_at__lte=newest) if newest else runs
    found = runs.defer("exceptions", "summary", "vertices").order_by("-number")[:MOST_MARKS]
    return [(run.started_at, Mark(run)) for run in found]


_SAMPLED_WITHIN = timedelta(minutes=10)  # the counters of a live run are stored at shorter intervals

# If the total decreased, a new job manager counts from zero, so all restores that it reports are new.
_COUNTED = """
SELECT run_id, since, at, times FROM (
    SELECT run_id, at, lag(at) OVER sampled AS since,
           restored - CASE WHEN total < lag(total) OVER sampled THEN 0 ELSE lag(restored) OVER sampled END AS times
    FROM monitoring_countersample WHERE run_id = ANY(%(runs)s) AND at >= %(before)s AND at <= %(until)s
    WINDOW sampled AS (PARTITION BY run_id ORDER BY at)
) counted
WHERE times > 0 AND at >= %(since)s ORDER BY at DESC LIMIT %(most)s
"""


def _restarts(checkpoints: Sequence[Checkpoint], newest: datetime | None) -> list[tuple[datetime, Mark]]:
    """Return the restarts that polls saw, and those between two polls that only the engine's counters show."""
    runs = {each.run_id: each.run for each in checkpoints}
    since, until = checkpoints[-1].triggered_at, newest or datetime.max.replace(tzinfo=UTC)
    seen = observed_restarts(runs, since, until)
    before = {"before": since - _SAMPLED_WITHIN, "since": since, "until": until}
    counted = select(_COUNTED, {"runs": list(runs), "most": MOST_MARKS, **before})
    marks = [(at, Mark(runs[key], at)) for key, at in seen]
    for row in counted:
        unseen = row["times"] - sum(key == row["run_id"] and row["since"] < at <= row["at"] for key, at in seen)
        if unseen > 0:
            marks.append((row["at"], Mark(runs[row["run_id"]], row["at"], unseen)))
    return marks


def observed_restarts(
    runs: Collection[int], since: datetime, until: datetime, among: Q | None = None
) -> list[tuple[int, datetime]]:
    """Return (key of the run, time) of each restart of `runs` (keys), newest first.

    A run restarts when it becomes RUNNING after it was RUNNING before, or after RESTARTING. A run that Waymark sees for
    the first time (the change has no source) has not restarted. Several restarts between two polls count as one. The
    status of a watched query only shows whether it has written or reported lately, so it has no restarts.
    """
    changes = RunStateChange.objects.filter(run__in=runs, target=RunState.RUNNING)
    ran_before = changes.filter(run=OuterRef("run"), id__lt=OuterRef("id"))
    again = changes.filter(
        among or Q(),
        Q(source=RunState.RESTARTING) | Exists(ran_before),
        at__range=(since, until),
        at__gt=F("run__started_at") + STARTING,
    ).exclude(Q(source="") | Q(run__job__cluster__discovery__in=WATCHED_DISCOVERIES))
    return list(again.order_by("-at").values_list("run_id", "at")[:MOST_MARKS])
