"""Read how the state of each operator of a job developed in a time range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.queries.facts import select
from dashboard.queries.rolled import RangeToRead, range_to_read
from dashboard.queries.series import IN_SPAN, Span, in_span
from monitoring.history.pipeline.columns import DAY, HOUR, MINUTE, MINUTES_KEPT_S
from monitoring.history.quantiles import in_hours, of_operator
from monitoring.history.rows import Wish, count
from monitoring.models import CheckpointStatus, Job, OperatorRollup

EXACT = 2_000  # up to this number of completed checkpoints, their operators are read one by one
PARTS = 48  # points of a small chart
_RUNS_WITH_NAMES = 20


@dataclass(frozen=True)
class Part:
    """The completed checkpoints of one operator in a part of the time range. None: they do not have the figure."""

    state_size: int | None  # the largest, in bytes
    written: int | None  # the sum of the checkpointed sizes, in bytes
    duration: int | None  # the longest end-to-end duration, in milliseconds


@dataclass(frozen=True)
class OperatorTrend:
    """One operator in the time range. `parts` is not empty, and its oldest part is first.

    `p95`: of its end-to-end durations, in milliseconds; None: not known.
    """

    name: str
    parts: list[Part]
    p95: float | None

    @property
    def states(self) -> list[int]:
        return [part.state_size for part in self.parts if part.state_size is not None]

    @property
    def state_size(self) -> int | None:
        return self.states[-1] if self.states else None

    @property
    def growth(self) -> int | None:
        """Return the difference in bytes between the last and the first part with a state."""
        return self.states[-1] - self.states[0] if len(self.states) > 1 else None

    @property
    def written(self) -> int | None:
        known = [part.written for part in self.parts if part.written is not None]
        return sum(known) if known else None

    @property
    def duration(self) -> int | None:
        return max((part.duration for part in self.parts if part.duration is not None), default=None)


@dataclass(frozen=True)
class OperatorTrends:
    """The operators of a job, the largest state first.

    `seconds`: the width of the roll-ups that were read; None: the checkpoints were. `is_missing`: there are too many
    checkpoints to read their operators, or archived ones, and there are no roll-ups.
    """

    operators: list[OperatorTrend]
    seconds: int | None = None
    is_missing: bool = False


_OPERATORS = f"""
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
JOIN monitoring_operatorcheckpoint o ON o.checkpoint_id = c.id AND o.triggered_at = c.triggered_at
WHERE {IN_SPAN} AND c.status = 'COMPLETED'
"""

_PARTS = f"""
SELECT o.vertex_id AS operator, max(o.name) AS name, max(o.state_size) AS state_size,
       sum(o.checkpointed_size)::bigint AS written, max(o.end_to_end_duration) AS duration
{_OPERATORS}
GROUP BY 1, floor(extract(epoch FROM (c.triggered_at - %(start)s)) / %(width)s) ORDER BY min(c.triggered_at)
"""  # noqa: S608 - constants only

_P95 = f"""
SELECT o.vertex_id AS operator, percentile_disc(0.95) WITHIN GROUP (ORDER BY o.end_to_end_duration) AS p95
{_OPERATORS} GROUP BY 1
"""


def read_operator_trends(job: Job, span: Span, now: datetime) -> OperatorTrends:
    """Return the operators' figures by part of the span, or by roll-up if there are many checkpoints."""
    number, to_read = _count(job, span), range_to_read(job, span)
    seconds, rows = _rollups(job, to_read, now) if number > EXACT or number < to_read.at_least else (None, [])
    if not rows and to_read.at_least <= number <= EXACT:
        return _from_checkpoints(job, span)
    by_operator: dict[str, list[OperatorRollup]] = defaultdict(list)
    for row in rows:
        by_operator[row.operator].append(row)
    names = _names(job, by_operator.keys())
    found = [
        OperatorTrend(
            names.get(operator, operator),
            [Part(row.state_size_max, row.checkpointed_size_sum, row.duration_max) for row in of_one],
            of_operator(of_one, 0.95),
        )
        for operator, of_one in by_operator.items()
    ]
    return OperatorTrends(_largest_first(found), seconds, is_missing=not rows)


def _from_checkpoints(job: Job, span: Span) -> OperatorTrends:
    width = max((span.end - span.start) / PARTS, timedelta(milliseconds=1)).total_seconds()
    names: dict[str, str] = {}
    parts: dict[str, list[Part]] = defaultdict(list)
    for row in select(_PARTS, in_span(job, span) | {"width": width}):
        operator, names[operator] = row.pop("operator"), row.pop("name")
        parts[operator].append(Part(**row))
    p95 = {row["operator"]: row["p95"] for row in select(_P95, in_span(job, span))}
    return OperatorTrends(
        _largest_first(OperatorTrend(names[each], of_one, p95[each]) for each, of_one in parts.items())
    )


def _largest_first(operators: Iterable[OperatorTrend]) -> list[OperatorTrend]:
    return sorted(operators, key=lambda each: (-(each.state_size or 0), each.name))


def _count(job: Job, span: Span) -> int:
    """Count the completed checkpoints in PostgreSQL, up to EXACT + 1."""
    wishes = [
        Wish("status", "=", CheckpointStatus.COMPLETED),
        Wish("triggered_at", ">=", span.start),
        Wish("triggered_at", "<=", span.end),
    ]
    return count(job, wishes if span.run is None else [*wishes, Wish("number", "=", span.run)], EXACT + 1)


def _rollups(job: Job, to_read: RangeToRead, now: datetime) -> tuple[int, list[OperatorRollup]]:
    """Return roll-ups, oldest first, and their width in seconds: the shortest one that is kept for the time range.

    Those of a run do not include a part in which another run ended or began. Otherwise the last one may not be over.
    """
    start, end = to_read.rolled.start, to_read.rolled.end
    seconds = HOUR if in_hours(to_read.rolled) else DAY
    for width in (MINUTE, seconds) if start >= now - timedelta(seconds=MINUTES_KEPT_S) else (seconds,):
        last = end - timedelta(seconds=width) if to_read.stretch.run else end
        within = {"start__gte": start, "start__lte": last, "completed__gt": 0}
        if found := list(OperatorRollup.objects.filter(job=job, seconds=width, **within).order_by("start")):
            return width, found
    return seconds, []


def _names(job: Job, operators: Collection[str]) -> Mapping[str, str]:
    """Return the names of operators in the newest runs, by vertex ID. An operator of older runs only is missing."""
    names: dict[str, str] = {}
    runs = job.runs.order_by("-number").values_list("vertices", flat=True)
    for vertices in runs[:_RUNS_WITH_NAMES]:
        for vertex in vertices:
            names.setdefault(vertex["id"], vertex["name"])
        if names.keys() >= set(operators):
            break
    return names
