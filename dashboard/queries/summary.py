"""Summarize a job's checkpoints as Flink does, but over any time range and any of the job's runs.

Flink summarizes only the live run. Percentiles are computed as in Flink, so that both show the same values. For many
checkpoints, the values come from roll-ups if these exist (dashboard/queries/rolled.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext_noop as _

from dashboard.percentiles import FRACTIONS, fraction_for
from dashboard.queries.facts import select
from dashboard.queries.rolled import MAX_UNROLLED, RangeToRead, range_to_read, sample_hours
from dashboard.queries.series import IN_SPAN, Span, in_span
from monitoring.history.pipeline.columns import FIGURES
from monitoring.history.quantiles import ROLLED, NotRolledUp, RangeFigures, UnknownSketch, figures_of_ranges
from monitoring.history.stretches import SLACK, Stretch
from monitoring.models import Job

# Sorting more values takes too long for a page: percentiles then come from every second, third, … checkpoint.
SORTED = 100_000
RUNS_SHOWN = 25


@dataclass(frozen=True)
class Measure:
    """A column of the checkpoints' table; `unit` is "ms" or "bytes"."""

    name: str
    label: str
    unit: str


MEASURES = (
    Measure("end_to_end_duration", _("End to end duration"), "ms"),
    Measure("checkpointed_size", _("Checkpointed size"), "bytes"),
    Measure("state_size", _("Full size"), "bytes"),
    Measure("processed_data", _("Processed in flight"), "bytes"),
    Measure("persisted_data", _("Persisted in flight"), "bytes"),
    Measure("start_delay_max", _("Start delay"), "ms"),
    Measure("alignment_max", _("Alignment"), "ms"),
    Measure("sync_max", _("Sync"), "ms"),
    Measure("async_max", _("Async"), "ms"),
)
KINDS = {"": "", "checkpoint": " AND NOT c.is_savepoint", "savepoint": " AND c.is_savepoint"}


@dataclass(frozen=True)
class Summary:
    """The summary of a span.

    `rows` has by name the values in the order of MEASURES, None for an unknown value. If `one_in` is n, percentiles
    come from every n-th checkpoint. If `rolled`, the values come from roll-ups, and measures without roll-ups from
    the checkpoints of every `hours_apart`-th hour. `whole_days` says that the first and the last day are included as
    a whole. `behind` is the reason why roll-ups could not be used for many checkpoints.
    """

    completed: int
    failed: int
    in_progress: int
    rows: Mapping[str, Sequence[float | None]]
    one_in: int = 1
    rolled: bool = False
    whole_days: bool = False
    hours_apart: int = 1
    behind: str = ""

    @property
    def figures(self) -> list[tuple[str, list[tuple[float | None, str]]]]:
        units = [measure.unit for measure in MEASURES]
        return [(name, list(zip(values, units, strict=True))) for name, values in self.rows.items()]

    def of(self, row: str, measure: str) -> float | None:
        return self.rows[row][[each.name for each in MEASURES].index(measure)]


_COUNTED = f"""
SELECT count(*) FILTER (WHERE done) AS completed, count(*) FILTER (WHERE c.status = 'FAILED') AS failed,
       count(*) FILTER (WHERE c.status = 'IN_PROGRESS') AS in_progress, {{columns}}
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
CROSS JOIN LATERAL (SELECT c.status = 'COMPLETED' AS done) status
WHERE {IN_SPAN} {{kind}}
"""  # noqa: S608 - constants only
_ORDERED = f"""
SELECT {{columns}} FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE {IN_SPAN} AND c.status = 'COMPLETED' AND c.id %% %(one_in)s = 0 {{kind}}
"""  # noqa: S608 - constants only


def read_summary(job: Job, span: Span, kind: str = "") -> Summary:
    """Summarize the completed checkpoints and savepoints, or only those of a `kind` of KINDS.

    The number of statements is constant.
    """
    to_read = range_to_read(job, span)
    if kind or not to_read.is_long:
        exact = _exact(job, span, kind)
        # If the roll-ups count more checkpoints than PostgreSQL has, some are archived: use the roll-ups.
        if kind or exact.completed >= to_read.at_least:
            return exact
    try:
        return _rolled(job, span, to_read)
    except (NotRolledUp, UnknownSketch) as why:
        return replace(_exact(job, span, kind), behind=str(why))


def _rolled(job: Job, span: Span, to_read: RangeToRead) -> Summary:
    """Summarize from roll-ups; measures without roll-ups come from the checkpoints of some hours.

    The values of roll-ups are exact, except percentiles.
    """
    shares = list(FRACTIONS.values())
    found = figures_of_ranges(job, [to_read.rolled], list(FIGURES), shares, most=MAX_UNROLLED)[0]
    counts = found["duration"].counts
    every_n, rest = _read_sampled_hours(job, span, to_read.stretch, counts["completed"])
    columns = [_column(found[ROLLED[m.name]]) if m.name in ROLLED else rest[m.name] for m in MEASURES]
    names = (_("Minimum"), _("Average"), _("Maximum"), *FRACTIONS)
    rows = {name: [column[place] for column in columns] for place, name in enumerate(names)}
    counted = (counts["completed"], counts["failed"], counts["pending"])
    return Summary(*counted, rows, rolled=True, whole_days=to_read.days is not None, hours_apart=every_n)


def _column(figure: RangeFigures) -> list[float | None]:
    return [figure.minimum, figure.mean, figure.maximum, *figure.quantiles.values()]


# One index look-up for each chosen hour and each run that was live in the hour.
_SAMPLED_HOURS = f"""
SELECT {{columns}} FROM unnest(%(hours)s::timestamptz[]) AS chosen (hour)
JOIN monitoring_run r ON r.job_id = %(job)s AND r.started_at <= chosen.hour + interval '1 hour'
 AND (r.ended_at IS NULL OR r.ended_at >= chosen.hour)
CROSS JOIN LATERAL (
    SELECT * FROM monitoring_checkpoint
    WHERE run_id = r.id AND status = 'COMPLETED' AND triggered_at >= chosen.hour
      AND triggered_at < chosen.hour + interval '1 hour'
    OFFSET 0
) c
WHERE {IN_SPAN}
"""  # noqa: S608 - constants only


def _read_sampled_hours(job: Job, span: Span, stretch: Stretch, completed: int) -> tuple[int, dict[str, list[Any]]]:
    """Return n and the values of the measures without roll-ups, computed from every n-th hour."""
    every_n, hours = sample_hours(stretch, completed)
    rest = [m.name for m in MEASURES if m.name not in ROLLED]
    columns = ", ".join(
        f"min(c.{name}) AS least_{name}, avg(c.{name}) AS mean_{name}, max(c.{name}) AS most_{name}, "
        f"percentile_cont(%(shares)s::float8[]) WITHIN GROUP (ORDER BY c.{name}) AS shares_{name}"
        for name in rest
    )
    parameters = {**in_span(job, span), "hours": hours, "shares": list(FRACTIONS.values())}
    row = select(_SAMPLED_HOURS.format(columns=columns), parameters)[0]
    unknown = [None] * len(FRACTIONS)
    return every_n, {
        name: [*(row[f"{what}_{name}"] for what in ("least", "mean", "most")), *(row[f"shares_{name}"] or unknown)]
        for name in rest
    }


def _exact(job: Job, span: Span, kind: str) -> Summary:
    """Summarize from the checkpoints, by three statements."""
    parameters, only = in_span(job, span), KINDS[kind]
    counted = select(_COUNTED.format(columns=_columns(_COUNTS), kind=only), parameters)[0]
    one_in = counted["completed"] // SORTED + 1
    rows: dict[str, Sequence[float | None]] = {
        label: [counted[f"{name}_{measure.name}"] for measure in MEASURES]
        for name, label in (("least", _("Minimum")), ("mean", _("Average")), ("most", _("Maximum")))
    }
    ordered = _percentiles(parameters | {"one_in": one_in}, only) if counted["completed"] else {}
    for place, name in enumerate(FRACTIONS):
        rows[name] = [_nth(ordered.get(measure.name), place) for measure in MEASURES]
    return Summary(counted["completed"], counted["failed"], counted["in_progress"], rows, one_in)


_COUNTS = (
    ("least", "min(c.{0}) FILTER (WHERE done)"),
    ("mean", "avg(c.{0}) FILTER (WHERE done)"),
    ("most", "max(c.{0}) FILTER (WHERE done)"),
)


def _columns(measures: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{sql.format(m.name)} AS {name}_{m.name}" for name, sql in measures for m in MEASURES)


def _percentiles(parameters: Mapping[str, Any], only: str) -> dict[str, Sequence[float | None]]:
    counts = select(_ORDERED.format(columns=_counts(), kind=only), parameters)[0]
    columns = ", ".join(
        f"percentile_cont(%({m.name})s::float8[]) WITHIN GROUP (ORDER BY c.{m.name}) AS {m.name}" for m in MEASURES
    )
    fractions = {m.name: [fraction_for(p, counts[m.name]) for p in FRACTIONS.values()] for m in MEASURES}
    return select(_ORDERED.format(columns=columns, kind=only), {**parameters, **fractions})[0]


def _counts() -> str:
    return ", ".join(f"count(c.{measure.name}) AS {measure.name}" for measure in MEASURES)


def _nth(values: Sequence[float | None] | None, place: int) -> float | None:
    return None if values is None else values[place]


@dataclass(frozen=True)
class RunSummary:
    """The figures of one run within a span."""

    number: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    completed: int
    failed: int
    median: float | None
    p95: float | None
    longest: int | None
    state_size: int | None  # size of the newest completed checkpoint in the time range
    checkpointed: float | None  # average checkpointed size


# The same percentiles as above. The fraction for each run depends on its number of checkpoints.
_BY_RUN = f"""
WITH chosen AS (
    SELECT * FROM monitoring_run WHERE job_id = %(job)s AND started_at <= %(end)s
      AND (ended_at IS NULL OR ended_at >= %(start)s) AND (%(run)s::bigint IS NULL OR number = %(run)s)
    ORDER BY number DESC LIMIT {RUNS_SHOWN}
), counted AS (
    SELECT r.id, count(c.end_to_end_duration) FILTER (WHERE c.status = 'COMPLETED') AS n
    FROM chosen r JOIN monitoring_checkpoint c ON c.run_id = r.id WHERE {IN_SPAN} {{kind}} GROUP BY r.id
)
SELECT r.number, r.state, r.started_at, r.ended_at, count(*) FILTER (WHERE done) AS completed,
       count(*) FILTER (WHERE c.status = 'FAILED') AS failed,
       percentile_cont({{half}}) WITHIN GROUP (ORDER BY c.end_to_end_duration) FILTER (WHERE done) AS median,
       percentile_cont({{p95}}) WITHIN GROUP (ORDER BY c.end_to_end_duration) FILTER (WHERE done) AS p95,
       max(c.end_to_end_duration) FILTER (WHERE done) AS longest,
       (array_agg(c.state_size ORDER BY c.triggered_at DESC) FILTER (WHERE done))[1] AS state_size,
       avg(c.checkpointed_size) FILTER (WHERE done) AS checkpointed
FROM chosen r JOIN counted ON counted.id = r.id JOIN monitoring_checkpoint c ON c.run_id = r.id
CROSS JOIN LATERAL (SELECT c.status = 'COMPLETED' AS done) status
WHERE {IN_SPAN} {{kind}}
GROUP BY r.id, r.number, r.state, r.started_at, r.ended_at, counted.n ORDER BY r.number DESC
"""  # noqa: S608 - constants only
_FRACTION = "greatest(0, least(1, ({0} * (counted.n + 1) - 1) / greatest(counted.n - 1, 1)::float8))"


def read_by_run(job: Job, span: Span, kind: str = "", *, rolled: bool = False) -> list[RunSummary]:
    """Return the newest runs with checkpoints in the span, at most RUNS_SHOWN.

    With `rolled`, use roll-ups if they cover the span.
    """
    if rolled and not kind:
        try:
            return _by_run_rolled(job, span)
        except (NotRolledUp, UnknownSketch):
            pass
    statement = _BY_RUN.format(kind=KINDS[kind], half=_FRACTION.format(0.5), p95=_FRACTION.format(0.95))
    return [RunSummary(**row) for row in select(statement, in_span(job, span))]


# The newest runs of a span, each with the state size of its newest completed checkpoint in the span.
_RUNS = f"""
SELECT r.id, r.number, r.state, r.started_at, r.ended_at, (
    SELECT c.state_size FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.triggered_at >= %(start)s AND c.triggered_at <= %(end)s
    ORDER BY c.triggered_at DESC LIMIT 1) AS state_size
FROM monitoring_run r
WHERE r.job_id = %(job)s AND r.started_at <= %(end)s AND (r.ended_at IS NULL OR r.ended_at >= %(start)s)
  AND (%(run)s::bigint IS NULL OR r.number = %(run)s)
ORDER BY r.number DESC LIMIT {RUNS_SHOWN}
"""  # noqa: S608 - constants only


def _by_run_rolled(job: Job, span: Span) -> list[RunSummary]:
    runs = select(_RUNS, in_span(job, span))
    stretches = [_run_range(run, span) for run in runs]
    found = (
        figures_of_ranges(job, stretches, ("duration", "checkpointed_size"), (0.5, 0.95), most=MAX_UNROLLED)
        if runs
        else []
    )
    return [
        _run_summary(run, each) for run, each in zip(runs, found, strict=True) if any(each["duration"].counts.values())
    ]


def _run_range(run: Mapping[str, Any], span: Span) -> Stretch:
    start, end = max(span.start, run["started_at"] - SLACK), span.end + timedelta(microseconds=1)
    return Stretch(start, max(start, min(end, run["ended_at"] + SLACK) if run["ended_at"] else end), run["id"])


def _run_summary(run: Mapping[str, Any], found: Mapping[str, RangeFigures]) -> RunSummary:
    duration = found["duration"]
    return RunSummary(
        number=run["number"],
        state=run["state"],
        started_at=run["started_at"],
        ended_at=run["ended_at"],
        completed=duration.counts["completed"],
        failed=duration.counts["failed"],
        median=duration.quantiles[0.5],
        p95=duration.quantiles[0.95],
        longest=duration.maximum,
        state_size=run["state_size"],
        checkpointed=found["checkpointed_size"].mean,
    )
