from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The code runs in a separate process, because audit hooks cannot be removed. Threads switch every few instructions.
_THREADS_UNDER_A_TRACE_FUNCTION = """
import sys, threading
from tests import audit_hooks

def trace(frame, event, arg):
    sys.settrace(None)
    sys.settrace(trace)

def noted(event, args):
    events.append(event)

def start():
    for _ in range(100):
        thread = threading.Thread(target=began.append, args=(1,))
        thread.start()
        thread.join()

events, began = [], []
threading.settrace(trace)
audit_hooks.add(noted)
sys.setswitchinterval(1e-6)
starters = [threading.Thread(target=start) for _ in range(8)]
for starter in starters:
    starter.start()
for starter in starters:
    starter.join()
print(len(began), "sys.settrace" in events)
"""


def test_threads_that_start_at_the_same_time_all_run_under_a_trace_function() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS_UNDER_A_TRACE_FUNCTION],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("800 True\n", "")
