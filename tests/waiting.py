"""Wait for a condition with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 240.0  # for a busy machine
T = TypeVar("T")


def eventually(what: str, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Return the first true result of `condition`, which is called every 20 ms. Fail after `limit_s`.

    The interval does not grow, because some conditions also drive the awaited work, for example a poller.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")
