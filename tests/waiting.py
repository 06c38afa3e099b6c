"""Waiting for what sets no event, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 240.0  # of a machine with much else to do
T = TypeVar("T")


def eventually(what: str, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """The first true result of `condition`; fails after `limit_s`.

    Asking costs processor time, here and at whom it asks: the longer it took, the less often it is asked, so that a
    wait becomes at most a twentieth longer by it.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < limit_s:
        result = condition()
        if result:
            return result
        time.sleep(min(max(0.02, waited / 20), 0.25))
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")
