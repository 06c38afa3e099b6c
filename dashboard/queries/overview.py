"""Read the figures of a job's page: those of Flink's overview and summary, but over all runs of the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_noop as _

from dashboard.queries.facts import select
from dashboard.queries.history import HistoryFilter
from dashboard.queries.rolled import MAX_UNROLLED, SHARES, RangeToRead, range_to_read
from dashboard.queries.series import IN_SPAN, Span, in_span
from monitoring.alerts.scope import rules_for
from monitoring.alerts.standing import Standing, standing_of
from monitoring.history import rows
from monitoring.history.quantiles import NotRolledUp, UnknownSketch, figures_of_ranges
from monitoring.models import Checkpoint, CheckpointStatus, Job, Run, Savepoint, SavepointState


@dataclass(frozen=True)
class Tiles:
    duration_p95: float | None
    duration_max: int | None
    alignment_p95: float | None
    alignment_max: int | None
    alignment_max_at: datetime | None
    state_size: int | None
    checkpointed_avg: float | None
    completed: int
    failed: int
    rolled: bool = False  # computed from roll-ups: they include savepoints, and percentiles are approximate
    whole_days: bool = False  # the first and the last day are included as a whole


_TILES = f"""
SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY c.end_to_end_duration) FILTER (WHERE done) AS duration_p95,
       max(c.end_to_end_duration) FILTER (WHERE done) AS duration_max,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY c.alignment_max) FILTER (WHERE done) AS alignment_p95,
       max(c.alignment_max) AS alignment_max,
       (array_agg(c.triggered_at ORDER BY c.alignment_max DESC NULLS LAST))[1] AS alignment_max_at,
       (array_agg(c.state_size ORDER BY c.triggered_at DESC) FILTER (WHERE done))[1] AS state_size,
       avg(c.checkpointed_size) FILTER (WHERE done) AS checkpointed_avg,
       count(*) FILTER (WHERE c.status = 'COMPLETED') AS completed,
       count(*) FILTER (WHERE c.status = 'FAILED') AS failed
FROM monitoring_run r
JOIN monitoring_checkpoint c ON c.run_id = r.id
CROSS JOIN LATERAL (SELECT c.status = 'COMPLETED' AND NOT c.is_savepoint AS done) kind
WHERE {IN_SPAN}
"""  # noqa: S608 - constants only


# The state size of the newest completed checkpoint. It costs one index look-up for each run.
_STATE = """
SELECT c.state_size FROM monitoring_run r CROSS JOIN LATERAL (
    SELECT state_size FROM monitoring_checkpoint
    WHERE run_id = r.id AND status = 'COMPLETED' AND NOT is_savepoint
      AND triggered_at >= %(start)s AND triggered_at <= %(end)s
    ORDER BY triggered_at DESC LIMIT 1
) c
WHERE r.job_id = %(job)s AND (%(run)s::bigint IS NULL OR r.number = %(run)s) ORDER BY r.number DESC LIMIT 1
"""


def read_tiles(job: Job, span: Span) -> Tiles:
    """Return the figures of a span, computed from roll-ups if the span is long and they cover it."""
    to_read = range_to_read(job, span)
    if to_read.is_long:
        try:
            return _rolled(job, span, to_read)
        except (NotRolledUp, UnknownSketch):
            pass
    return Tiles(**select(_TILES, in_span(job, span))[0])


def _rolled(job: Job, span: Span, to_read: RangeToRead) -> Tiles:
    found = figures_of_ranges(
        job, [to_read.rolled], ("duration", "alignment", "checkpointed_size"), SHARES, most=MAX_UNROLLED
    )[0]
    duration, alignment = found["duration"], found["alignment"]
    state = select(_STATE, in_span(job, span))
    return Tiles(
        duration_p95=duration.p95,
        duration_max=duration.maximum,
        alignment_p95=alignment.p95,
        alignment_max=alignment.maximum,
        alignment_max_at=None,
        state_size=state[0]["state_size"] if state else None,
        checkpointed_avg=found["checkpointed_size"].mean,
        completed=duration.counts["completed"],
        failed=duration.counts["failed"],
        rolled=True,
        whole_days=to_read.days is not None,
    )


@dataclass(frozen=True)
class Latest:
    completed: Checkpoint | None
    failed: Checkpoint | None
    savepoint: Checkpoint | None
    restored_run: Run | None

    @property
    def rows(self) -> list[tuple[str, Checkpoint | None]]:
        return [(_("Completed"), self.completed), (_("Failed"), self.failed), (_("Savepoint"), self.savepoint)]

    @property
    def any(self) -> bool:
        return any((self.completed, self.failed, self.savepoint, self.restored_run))


_MARKED = (
    HistoryFilter(CheckpointStatus.COMPLETED.value, "checkpoint"),
    HistoryFilter(CheckpointStatus.FAILED.value),
    HistoryFilter(CheckpointStatus.COMPLETED.value, "savepoint"),
)


def read_latest(job: Job, count: int) -> tuple[list[Checkpoint], Latest]:
    """Return the `count` newest checkpoints and the newest of each kind, over all runs.

    Flink shows only those of the current run.
    """
    newest, *kinds = rows.newest(job, [([], count), *((kind.wishes(), 1) for kind in _MARKED)])
    completed, failed, savepoint = (found[0] if found else None for found in kinds)
    restored = job.runs.filter(restored_at__isnull=False).order_by("-number").first()
    return newest, Latest(completed, failed, savepoint, restored)


def read_rule_standing(job: Job, now: datetime) -> Standing | None:
    """Return how close the job's rule about failed checkpoints is to an incident."""
    rules = [each for each in rules_for(job) if each.kind == "failed_in_window"]
    return standing_of(rules[0], job, now) if rules else None


def newest_savepoint(job: Job) -> Savepoint | None:
    return (
        job.savepoints.filter(state=SavepointState.COMPLETED, gone_at=None, completed_at__isnull=False)
        .order_by("-completed_at")
        .first()
    )
