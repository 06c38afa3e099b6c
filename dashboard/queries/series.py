"""Read the data of charts, thinned in SQL to at most POINTS per trace, however long the range is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from dashboard.queries.facts import select
from dashboard.queries.history_marks import STARTING, observed_restarts
from monitoring.history.pipeline.columns import HOUR
from monitoring.models import Job, OperatorCheckpoint, RestartAttempt, Rollup, Run

POINTS = 360
CELLS = 2_000
MOST_SUBTASKS = 40
MOST_COLUMNS = 120
EXAMINED = 30
AMONG_THE_LAST = 0.97  # share of the longest end-to-end duration from which a subtask is among the last

RANGES: dict[str, timedelta | None] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "1y": timedelta(days=365),
    "all": None,
}
DEFAULT_RANGE = "1h"
SHORTEST = timedelta(minutes=2)
_MOST_STARTS = 20  # a chart shows only the newest marks


@dataclass(frozen=True)
class Span:
    """A time range that includes both its ends. With `run`, only the run with this number counts."""

    start: datetime
    end: datetime
    run: int | None = None

    @property
    def bucket(self) -> timedelta:
        """Return the time that one point covers if there are more checkpoints than points."""
        return max((self.end - self.start) / POINTS, timedelta(milliseconds=1))


@dataclass(frozen=True)
class CheckpointPoint:
    checkpoint_id: int
    run_number: int
    triggered_at: datetime
    failed: bool
    is_savepoint: bool
    duration: int | None
    start_delay: int | None
    alignment: int | None
    sync: int | None
    asynchronous: int | None
    state_size: int | None
    checkpointed_size: int | None
    stands_for: int  # number of checkpoints in the bucket that this point represents
    failure: str = ""
    processed: int | None = None
    persisted: int | None = None
    start_delay_max: int | None = None  # maximum over all subtasks; start_delay is that of one of the last
    alignment_max: int | None = None  # maximum over all subtasks; alignment is that of one of the last
    pk: int = 0


@dataclass(frozen=True)
class RunStart:
    """The start of a run or, with `by_engine`, a restart of the run by the engine.

    `version` is the run's version of the launch record, or None if it is that of the run before. `settings` is the
    number of settings of the engine's configuration that changed with the run.
    """

    number: int
    at: datetime
    restored: str  # the restored snapshot: "savepoint 42", "checkpoint 7" or ""
    by_engine: bool = False
    version: int | None = None
    settings: int = 0

    @property
    def name(self) -> str:
        return _("engine restart") if self.by_engine else _("run %(number)s") % {"number": self.number}

    @property
    def label(self) -> str:
        return " · ".join([self.name, *self._details()])

    def _details(self) -> Iterator[str]:
        if self.version is not None:
            yield _("version %(number)s") % {"number": self.version}
        if self.settings:
            changed = ngettext("%(count)s setting changed", "%(count)s settings changed", self.settings)
            yield changed % {"count": self.settings}
        if self.restored:
            yield _("restored from %(state)s") % {"state": self.restored}


@dataclass(frozen=True)
class Gap:
    """Checkpoints that no poll saw, between the last seen checkpoint before and the first after them."""

    start: datetime
    end: datetime
    first_id: int
    last_id: int


@dataclass(frozen=True)
class AlignmentColumn:
    """The checkpoint of one column. `stands_for` is the number of checkpoints from which it was selected."""

    checkpoint_id: int
    triggered_at: datetime
    stands_for: int = 1
    pk: int = 0


@dataclass(frozen=True)
class AlignmentGrid:
    """Waits by subtask (row) and checkpoint (column) in ms, None if the subtask did not acknowledge.

    `left_out` is the number of subtasks with shorter waits that are not shown.
    """

    columns: list[AlignmentColumn]
    subtasks: list[tuple[str, int]]  # name of the operator, index of the subtask
    values: list[list[int | None]]
    left_out: int = 0

    @property
    def by_subtask(self) -> list[tuple[str, int, float | None, int | None, AlignmentColumn | None]]:
        """Return for each row: operator, subtask, average wait, longest wait, and the column of the longest wait."""
        rows = []
        for (name, subtask), line in zip(self.subtasks, self.values, strict=True):
            known = [(value, column) for value, column in zip(line, self.columns, strict=True) if value is not None]
            worst = max(known, key=lambda each: each[0], default=(None, None))
            rows.append((name, subtask, sum(v for v, _ in known) / len(known) if known else None, *worst))
        return rows


_FIRST = """
SELECT min(c.triggered_at) AS first FROM monitoring_run r
CROSS JOIN LATERAL (
    SELECT triggered_at FROM monitoring_checkpoint WHERE run_id = r.id ORDER BY triggered_at LIMIT 1
) c
WHERE r.job_id = %s
"""


def span_of(job: Job, chosen: str, now: datetime) -> Span:
    """Return the chosen range up to `now`, shortened to the job's history. `axis_of` returns the whole range."""
    length = RANGES.get(chosen, RANGES[DEFAULT_RANGE])
    first = first_checkpoint_at(job)
    covered = max(now - first, SHORTEST) if first else length or SHORTEST
    return Span(now - (covered if length is None else min(length, covered)), now)


def axis_of(chosen: str, span: Span) -> Span:
    """Return the range that an axis covers: the chosen range, also if the job's history is shorter."""
    length = RANGES.get(chosen)
    return span if length is None else replace(span, start=span.end - length)


def first_checkpoint_at(job: Job) -> datetime | None:
    """Return the time of the oldest stored checkpoint, or the hour of the oldest roll-up if that is earlier."""
    first: datetime | None = select(_FIRST, [job.pk])[0]["first"]
    hours = Rollup.objects.filter(job=job, seconds=HOUR).order_by("start").values_list("start", flat=True)
    rolled = hours.first()
    return rolled if rolled and (first is None or rolled + timedelta(seconds=HOUR) <= first) else first


# The condition for checkpoints in a span, for statements with the run as `r` and the checkpoint as `c`.
IN_SPAN = """
r.job_id = %(job)s AND c.triggered_at >= %(start)s AND c.triggered_at <= %(end)s
AND (r.ended_at IS NULL OR r.ended_at >= %(start)s) AND (%(run)s::bigint IS NULL OR r.number = %(run)s)
"""


def in_span(job: Job, span: Span) -> dict[str, Any]:
    """Return the values for the placeholders of the SQL condition IN_SPAN."""
    return {"job": job.pk, "start": span.start, "end": span.end, "run": span.run}


# Select the slowest completed and failed checkpoint and savepoint of each bucket. The phases are those of one of the
# last subtasks: the maxima of the phases may belong to different subtasks and exceed the total duration. The subtask
# with the longest alignment is selected, because a sink acknowledges last too but has nothing to align.
_POINTS = f"""
WITH points AS (
    SELECT DISTINCT ON (bucket, failed, is_savepoint) *,
           count(*) OVER (PARTITION BY bucket, failed, is_savepoint) AS stands_for
    FROM (
        SELECT c.id, c.checkpoint_id, r.number AS run_number, c.triggered_at, c.status = 'FAILED' AS failed,
               c.is_savepoint, c.end_to_end_duration AS duration, c.state_size, c.checkpointed_size,
               c.processed_data AS processed, c.persisted_data AS persisted, c.start_delay_max, c.alignment_max,
               left(c.failure_message, 200) AS failure,
               floor(extract(epoch FROM (c.triggered_at - %(start)s)) / %(bucket)s) AS bucket
        FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
        WHERE {IN_SPAN} AND c.status <> 'IN_PROGRESS'
    ) found
    ORDER BY bucket, failed, is_savepoint, duration DESC NULLS LAST
)
SELECT points.*, last.start_delay, last.alignment, last.sync, last.asynchronous
FROM points LEFT JOIN LATERAL (
    SELECT subtask.* FROM monitoring_operatorcheckpoint o
    CROSS JOIN LATERAL unnest(o.subtask_end_to_end, o.subtask_start_delay, o.subtask_alignment, o.subtask_sync,
                              o.subtask_async)
        AS subtask(end_to_end, start_delay, alignment, sync, asynchronous)
    WHERE o.checkpoint_id = points.id AND o.triggered_at = points.triggered_at AND subtask.end_to_end IS NOT NULL
    ORDER BY subtask.end_to_end >= {AMONG_THE_LAST} * max(subtask.end_to_end) OVER () DESC,
             subtask.alignment DESC NULLS LAST, subtask.end_to_end DESC
    LIMIT 1
) last ON TRUE
"""  # noqa: S608 - constants only


def read_points(job: Job, span: Span) -> list[CheckpointPoint]:
    """Return the points of a span, oldest first."""
    rows = select(_POINTS, in_span(job, span) | {"bucket": span.bucket.total_seconds()})
    points = [CheckpointPoint(pk=row.pop("id"), **{k: v for k, v in row.items() if k != "bucket"}) for row in rows]
    return sorted(points, key=lambda point: (point.triggered_at, point.checkpoint_id))


def read_run_starts(job: Job, span: Span) -> list[RunStart]:
    """Return the starts of runs, except the job's first, and the engine's restarts, oldest first."""
    runs = Run.objects.filter(job=job, started_at__lte=span.end).exclude(ended_at__lt=span.start)
    runs = runs.filter(number=span.run) if span.run else runs
    newest = list(runs.defer("exceptions", "summary", "vertices").order_by("-number")[:_MOST_STARTS])
    found = RestartAttempt.objects.filter(new_run__in=newest).select_related("savepoint__checkpoint")
    attempts = {attempt.new_run_id: attempt for attempt in found}
    versions = _versions(job, newest)
    settings = Counter(job.configuration_changes.filter(run__in=newest).values_list("run_id", flat=True))
    marks = [
        replace(mark, version=versions.get(run.number), settings=settings[run.pk]) if not mark.by_engine else mark
        for run in newest
        for mark in _run_marks(run, attempts.get(run.pk))
    ]
    marks += _other_engine_restarts(newest, span)
    within = sorted((mark for mark in marks if span.start <= mark.at <= span.end), key=lambda mark: mark.at)
    return within[-_MOST_STARTS:]


_GAPS = """
SELECT g.first_id, g.last_id, coalesce(before.triggered_at, r.started_at) AS start,
       coalesce(after.triggered_at, g.noticed_at) AS end
FROM monitoring_checkpointgap g JOIN monitoring_run r ON r.id = g.run_id
LEFT JOIN monitoring_checkpoint before ON before.run_id = g.run_id AND before.checkpoint_id = g.first_id - 1
LEFT JOIN monitoring_checkpoint after ON after.run_id = g.run_id AND after.checkpoint_id = g.last_id + 1
WHERE r.job_id = %(job)s AND (%(run)s::bigint IS NULL OR r.number = %(run)s)
  AND coalesce(after.triggered_at, g.noticed_at) >= %(start)s AND coalesce(before.triggered_at, r.started_at) <= %(end)s
ORDER BY g.id DESC LIMIT 50
"""


def read_gaps(job: Job, span: Span) -> list[Gap]:
    """Return the newest gaps of a span, with start and end limited to the span."""
    found = [Gap(**row) for row in select(_GAPS, in_span(job, span))]
    return [replace(gap, start=max(gap.start, span.start), end=min(gap.end, span.end)) for gap in found]


def _versions(job: Job, runs: Sequence[Run]) -> dict[int, int]:
    """Return the version of the launch record for each number of a run that has another version than the run before."""
    numbers = {run.number + back for run in runs for back in (-1, 0)}
    rows = Run.objects.filter(job=job, number__in=numbers).values_list("number", "launch_version__number")
    found = {number: version for number, version in rows if version is not None}
    return {number: version for number, version in found.items() if found.get(number - 1, version) != version}


def _run_marks(run: Run, attempt: RestartAttempt | None) -> list[RunStart]:
    """Return the start of a run, and the engine's restart with which the run restored its state last, if any."""
    own = _snapshot_name(run.restored_checkpoint_id, run.restored_is_savepoint)
    since = attempt.restore_path != run.restored_path if attempt else _was_restored_later(run)
    marks = [RunStart(run.number, run.started_at, _savepoint_name(attempt) if since else own)] if run.number > 1 else []
    if since and own and run.restored_at:
        marks.append(RunStart(run.number, run.restored_at, own, by_engine=True))
    return marks


def _other_engine_restarts(runs: Sequence[Run], span: Span) -> list[RunStart]:
    """Return the engine's restarts without each run's last restore, which `_run_marks` returns."""
    restored = F("run__restored_at")
    others = Q(run__restored_at=None) | Q(at__lt=restored) | Q(at__gt=restored + STARTING)
    numbers = {run.pk: run.number for run in runs}
    seen = observed_restarts(numbers, span.start, span.end, others)
    return [RunStart(numbers[key], at, "", by_engine=True) for key, at in seen]


def _savepoint_name(attempt: RestartAttempt | None) -> str:
    """Return the name of the savepoint from which a restart started its run."""
    taken = attempt.savepoint.checkpoint if attempt and attempt.savepoint else None
    return _snapshot_name(taken.checkpoint_id, True) if taken else ""


def _snapshot_name(checkpoint_id: int | None, is_savepoint: bool | None) -> str:
    return "" if checkpoint_id is None else f"{_('savepoint') if is_savepoint else _('checkpoint')} {checkpoint_id}"


def _was_restored_later(run: Run) -> bool:
    return run.restored_at is not None and run.restored_at - run.started_at > STARTING


# Select for each part of the span the checkpoint with the longest wait. Only the newest LOOKED_AT checkpoints of each
# run with known subtasks are examined, so that the cost does not grow with the number of checkpoints.
_WAITED = f"""
SELECT longest.* FROM generate_series(0, %(columns)s - 1) AS part (n)
CROSS JOIN LATERAL (
    SELECT c.id, c.checkpoint_id, c.triggered_at, count(*) OVER () AS stands_for
    FROM monitoring_run r CROSS JOIN LATERAL (
        SELECT id, run_id, checkpoint_id, triggered_at, alignment_max FROM monitoring_checkpoint
        WHERE run_id = r.id AND alignment_max IS NOT NULL
          AND triggered_at > %(end)s::timestamptz - (part.n + 1) * %(bucket)s::interval
          AND triggered_at <= %(end)s::timestamptz - part.n * %(bucket)s::interval
        ORDER BY triggered_at DESC LIMIT {EXAMINED}
    ) c
    WHERE {{in_span}} AND r.started_at <= %(end)s::timestamptz - part.n * %(bucket)s::interval + interval '1 hour'
      AND EXISTS (SELECT FROM monitoring_operatorcheckpoint o
                  WHERE o.checkpoint_id = c.id AND o.triggered_at = c.triggered_at)
    ORDER BY c.alignment_max DESC, c.triggered_at DESC LIMIT 1
) longest
ORDER BY longest.triggered_at
"""  # noqa: S608 - constants only
_SUBTASKS = """
SELECT c.num_subtasks FROM monitoring_run r CROSS JOIN LATERAL (
    SELECT * FROM monitoring_checkpoint WHERE run_id = r.id AND alignment_max IS NOT NULL
      AND triggered_at >= %(start)s AND triggered_at <= %(end)s
    ORDER BY triggered_at DESC LIMIT 1
) c
WHERE {in_span} ORDER BY r.number DESC LIMIT 1
"""


def read_alignment(job: Job, span: Span) -> AlignmentGrid:
    """Return the waits over the whole span, in as many columns as CELLS allows."""
    chosen = _longest_waits(job, span)
    ends = (chosen[0]["triggered_at"], chosen[-1]["triggered_at"]) if chosen else (span.start, span.end)
    place = {each["id"]: index for index, each in enumerate(chosen)}
    operators = OperatorCheckpoint.objects.filter(checkpoint__in=list(place), triggered_at__range=ends).only(
        "checkpoint_id", "name", "position", "subtask_alignment"
    )
    lines: dict[tuple[int, str, int], list[int | None]] = {}
    for operator in operators:
        for subtask, alignment in enumerate(operator.subtask_alignment):
            line = lines.setdefault((operator.position, operator.name, subtask), [None] * len(chosen))
            line[place[operator.checkpoint_id]] = alignment
    shown = sorted(sorted(lines, key=lambda key: -max(v or 0 for v in lines[key]))[:MOST_SUBTASKS])
    return AlignmentGrid(
        columns=[AlignmentColumn(c["checkpoint_id"], c["triggered_at"], c["stands_for"], c["id"]) for c in chosen],
        subtasks=[(name, subtask) for _, name, subtask in shown],
        values=[lines[key] for key in shown],
        left_out=len(lines) - len(shown),
    )


def _longest_waits(job: Job, span: Span) -> list[dict[str, Any]]:
    """Return the checkpoints with the longest wait in each part of the span, oldest first."""
    known = select(_SUBTASKS.format(in_span=IN_SPAN), in_span(job, span))
    subtasks = known[0]["num_subtasks"] if known else 1
    columns = max(1, min(MOST_COLUMNS, CELLS // max(1, min(subtasks or 1, MOST_SUBTASKS))))
    bucket = (span.end - span.start) / columns + timedelta(microseconds=1)
    return select(_WAITED.format(in_span=IN_SPAN), in_span(job, span) | {"columns": columns, "bucket": bucket})
