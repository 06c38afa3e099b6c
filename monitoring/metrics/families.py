"""Metric families that follow Prometheus' rules: base units, `_total` for counters, no sample for unknown values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Family = GaugeMetricFamily | CounterMetricFamily
Samples = Iterable[tuple[Sequence[str], float | None]]


def gauge(name: str, meaning: str, value: float | None) -> Family:
    return gauges(name, meaning, (), [((), value)])


def gauges(name: str, meaning: str, labels: Sequence[str], samples: Samples) -> Family:
    return _filled(GaugeMetricFamily(f"waymark_{name}", meaning, labels=labels), samples)


def counters(name: str, meaning: str, labels: Sequence[str], samples: Samples) -> Family:
    """Return a family of counters. `name` does not include `_total`."""
    return _filled(CounterMetricFamily(f"waymark_{name}", meaning, labels=labels), samples)


def _filled(family: Family, samples: Samples) -> Family:
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family
