"""Read facts from stored rows in bulk: a constant number of queries per kind for any number of rules and jobs.

A gatherer leaves out each quiet job if no row of the time range could make a rule open. In a healthy fleet these are
nearly all jobs, and each of them costs only its share of one query.
"""

from __future__ import annotations

from monitoring.alerts.gathering import (
    budgets,
    completions,
    failures,
    figures,
    growth,
    runs,
    savepoints,
    scheduled_runs,
)
from monitoring.alerts.gathering.query import FactQuery, Found, Gatherer
from monitoring.alerts.kinds.base import Source

_GATHERERS: dict[Source, Gatherer] = {
    Source.FAILURES: failures.gather_failures,
    Source.SETTLED: failures.gather_settled,
    Source.COMPLETIONS: completions.gather_completions,
    Source.METRIC: figures.gather_figures,
    Source.HOURLY_SIZE: growth.gather_hourly_sizes,
    Source.SAVEPOINTS: savepoints.gather_savepoints,
    Source.FAILED_SAVEPOINTS: savepoints.gather_failed_savepoints,
    Source.RUNS: runs.gather_ended_runs,
    Source.RESTARTS: runs.gather_restarts,
    Source.SCHEDULED_RUNS: scheduled_runs.gather_scheduled_runs,
    Source.BUDGETS: budgets.gather_budgets,
}


def gather(query: FactQuery) -> Found:
    """Return facts by job, at least for `query.must` and for jobs whose incidents may have opened or closed."""
    return _GATHERERS[query.kind.source](query)
