"""How long a process may be certain that its ZooKeeper session lives when no more answers come.

The server ends a session when it has not heard of it for the session time-out. A request that went through the quorum
proves that the session lived after the request was sent, so the time counts from there. Three quarters of the time-out
are counted on, no more: the server that the client talks to passes on the client's signs of life only once in a tick,
and what it had not passed on is lost with it. The rest is also what one has to stop before a successor may start.
"""

from __future__ import annotations

_CERTAIN_PART = 0.75


def certain_until(asked_at: float, session_timeout_s: float) -> float:
    """`asked_at`: when the request that was answered was sent, on the monotonic clock."""
    return asked_at + session_timeout_s * _CERTAIN_PART
