"""Waiting for what sets no event, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 240.0  # of a machine with much else to do
T = TypeVar("T")


def eventually(what: str, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """The first true result of `condition`; fails after `limit_s`.

    Asked every 20 ms however long it takes: what is waited for may go on only when it is asked, as a poller does that
    the condition drives.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")
