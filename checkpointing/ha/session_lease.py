"""How long a process may assume that its ZooKeeper session lives after the last answer.

The server ends a session if it has not heard from the client during the session timeout. A request that went through
the quorum proves that the session lived after the request was sent, so the time counts from there. Only three quarters
of the timeout count. The client's server passes on its signs of life only once per tick, and those not yet passed on
are lost if the server fails. The rest of the timeout is also the time to stop before a successor may start.
"""

from __future__ import annotations

_CERTAIN_PART = 0.75


def certain_until(asked_at: float, session_timeout_s: float) -> float:
    """Return until when the session certainly lives.

    `asked_at`: when the answered request was sent, on the monotonic clock.
    """
    return asked_at + session_timeout_s * _CERTAIN_PART
