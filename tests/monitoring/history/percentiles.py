"""What a percentile from roll-ups may be."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import pytest

from monitoring.history.sketches import RANK_ERROR


def nth(values: Sequence[int], share: float) -> int:
    """Return percentile_disc of sorted values."""
    return values[min(len(values), max(1, ceil(share * len(values) - 1e-9))) - 1]


def near(values: Sequence[int], share: float) -> Any:
    """Return what a percentile of a sketch of these sorted values must equal.

    One in a hundred sketches exceeds the stated error, so twice that is allowed. Sketches have 32-bit floats.
    """
    low, high = (nth(values, share + error) for error in (-2 * RANK_ERROR, 2 * RANK_ERROR))
    return pytest.approx((low + high) / 2, rel=0, abs=(high - low) / 2 + 1e-6 * high)
