"""How long a process may assume that its ZooKeeper session is alive after the last answer.

The server ends a session if it has not heard from the client during the session timeout. A request that went through
the quorum proves that the session was alive after the request was sent, so the time counts from there. Only three
quarters of the timeout count. The server that the client is connected to reports the client's activity to ZooKeeper's
leader only once per tick. Activity that was not reported yet is lost if that server fails. During the rest of the
timeout, the process must stop before a successor may start.
"""

from __future__ import annotations

_CERTAIN_PART = 0.75


def certain_until(asked_at: float, session_timeout_s: float) -> float:
    """Return until when the session is certainly alive.

    `asked_at`: when the answered request was sent, on the monotonic clock.
    """
    return asked_at + session_timeout_s * _CERTAIN_PART
