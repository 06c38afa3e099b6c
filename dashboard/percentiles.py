"""Percentiles as Flink computes them (DescriptiveStatistics): interpolated at position p·(n+1) in the sorted values."""

from __future__ import annotations

from collections.abc import Sequence

FRACTIONS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return a percentile of `ordered`, which has at least one value and is sorted in ascending order."""
    place = fraction_for(fraction, len(ordered)) * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (place - lower) * (ordered[upper] - ordered[lower])


def fraction_for(wanted: float, count: int) -> float:
    """Return the fraction for PostgreSQL's percentile_cont, which interpolates at position p·(n-1)+1."""
    return max(0.0, min(1.0, (wanted * (count + 1) - 1) / (count - 1))) if count > 1 else 0.0
