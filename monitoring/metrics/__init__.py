"""All metrics for Prometheus, of Waymark itself and of every job, with a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from monitoring.metrics import jobs, own
from monitoring.selfwatch.own_facts import Facts
from monitoring.selfwatch.verdict import Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Scrape(Collector):
    """One scrape. Without the database, it only lacks the metrics that come from rows, such as those of jobs."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        self._facts, self._verdict = facts, verdict

    def collect(self) -> Iterator[Metric]:
        yield from own.collect(self._facts, self._verdict)
        if self._facts.stored is not None:
            yield from jobs.collect()


def exposition(facts: Facts, verdict: Verdict) -> bytes:
    return generate_latest(_Scrape(facts, verdict))
