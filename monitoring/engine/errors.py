"""The errors of requests to an engine. client.py shows the tree and explains each class."""

from __future__ import annotations

from enum import Enum

from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason


class EngineError(Exception):
    """The base of all errors. `reason` is Waymark's reason or the engine's text. `str()` returns its English text."""

    def __init__(self, reason: Reason | str) -> None:
        super().__init__(str(reason))
        self.reason = reason


class ConnectionFailure(Enum):
    """The kind of a connection failure. A form shows it at the field that it concerns."""

    NOT_ALLOWED = "the address is not allowed"
    UNRESOLVED = "the name does not resolve"
    REFUSED = "nothing listens there"
    NOT_CONNECTED = "the network does not lead there"
    TIMED_OUT = "no answer in time"
    CERTIFICATE = "the server's certificate is not trusted"
    CLIENT_CERTIFICATE = "the server wants another certificate of ours"
    NO_TLS = "the server does not speak TLS"
    NO_HTTP = "the server does not speak HTTP"
    CLOSED_BY_SERVER = "it hung up without an answer"
    BROKEN = "the answer broke off"


class Unreachable(EngineError):
    def __init__(self, reason: Reason | str, kind: ConnectionFailure = ConnectionFailure.BROKEN) -> None:
        super().__init__(reason)
        self.kind = kind


class NotReady(EngineError):
    """`by_proxy`: the answer is not in the engine's form, so a server in between gave it."""

    def __init__(self, reason: Reason | str, *, by_proxy: bool = False) -> None:
        super().__init__(reason)
        self.by_proxy = by_proxy


class RequestNotSent(NotReady):
    pass


class RootUnreadable(NotReady):
    """The directory of checkpoint locations cannot be listed."""


class NotFound(EngineError):
    pass


# Unauthorized (401, 407 by a proxy), timed out, conflict (known already), too early, too many requests.
_RETRYABLE_STATUSES = (401, 407, 408, 409, 425, 429)


class Refused(EngineError):
    """The answer to a request that the engine refused.

    `engine_text` is what the engine or its program wrote. It is "" if the reason is only Waymark's.
    """

    def __init__(self, status: int, reason: Reason | str, engine_text: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.engine_text = reason if isinstance(reason, str) else engine_text

    @property
    def is_request_invalid(self) -> bool:
        """Whether the request itself is the cause, so that the engine would refuse it again.

        Other causes are the engine's own failures, missing credentials, and the time or rate of requests.
        """
        return 400 <= self.status < 500 and self.status not in _RETRYABLE_STATUSES


class Redirected(Refused):
    """A redirect, which the client does not follow. `location` is the server's header, "" if there is none."""

    def __init__(self, status: int, location: str) -> None:
        if location:
            reason = EngineReason.REDIRECTS(status=status, location=location[:300])
        else:
            reason = EngineReason.REDIRECTS_ELSEWHERE(status=status)
        super().__init__(status, reason)
        self.location = location


class Malformed(EngineError):
    pass
