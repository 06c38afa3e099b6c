"""Add an audit hook that does not disturb the measurement of coverage.

CPython 3.11 audits `sys.settrace`. While a hook that is written in Python runs for one new thread, another one can
start. Its own `sys.settrace` then raises RuntimeError, so that the thread ends before it calls its target.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_tracing = threading.RLock()
_takes_turns = False


def add(hook: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Call `hook` for each audit event until this process ends."""
    global _takes_turns
    if not _takes_turns and threading.gettrace() is not None:
        _let_threads_take_turns()
        _takes_turns = True
    sys.addaudithook(hook)


def _let_threads_take_turns() -> None:
    """Make threads install their trace function one at a time."""
    set_trace, trace_new_thread = sys.settrace, threading.gettrace()
    assert trace_new_thread is not None

    def in_turn(function: Any) -> None:
        with _tracing:
            set_trace(function)

    def trace_in_turn(frame: FrameType, event: str, arg: Any) -> Any:
        with _tracing:
            return trace_new_thread(frame, event, arg)

    sys.settrace = in_turn
    threading.settrace(trace_in_turn)
