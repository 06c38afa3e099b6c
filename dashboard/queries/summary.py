"""How a job's checkpoints usually go: Flink's summary, over any time and any of the job's runs.

Flink knows its last ten checkpoints of the live run; percentiles are computed as it does, so that both show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_noop as _

from dashboard.percentiles import FRACTIONS, fraction_for
from dashboard.queries.facts import select
from dashboard.queries.series import IN_SPAN, Span, in_span
from monitoring.models import Job

# More values than that are not sorted while somebody waits: the percentiles then come from every second, third, …
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
    """`rows`: name → values in the order of MEASURES, None where nothing is known. `one_in`: percentiles come from
    every so many-th checkpoint."""

    completed: int
    failed: int
    in_progress: int
    rows: Mapping[str, Sequence[float | None]]
    one_in: int = 1

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
    """Of completed checkpoints and savepoints, or only those of a `kind` of KINDS. Three statements."""
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
    """A run's share of a span."""

    number: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    completed: int
    failed: int
    median: float | None
    p95: float | None
    longest: int | None
    state_size: int | None  # of its newest completed checkpoint in the span
    checkpointed: float | None  # on average


# The same percentiles as above; the fraction of each run follows from how many it has.
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


def read_by_run(job: Job, span: Span, kind: str = "") -> list[RunSummary]:
    """The newest runs of the span, RUNS_SHOWN at most, those with checkpoints in it."""
    statement = _BY_RUN.format(kind=KINDS[kind], half=_FRACTION.format(0.5), p95=_FRACTION.format(0.95))
    return [RunSummary(**row) for row in select(statement, in_span(job, span))]
