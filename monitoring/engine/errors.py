"""What can go wrong between Waymark and an engine: the tree is drawn, and each kind explained, in client.py."""

from __future__ import annotations

from enum import Enum

from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason


class EngineError(Exception):
    """`reason`: ours, or what the engine said. `str()` of every one is its English text."""

    def __init__(self, reason: Reason | str) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Trouble(Enum):
    """What kind of silence: said in a form beside the field that it concerns."""

    NOT_ALLOWED = "the address is not allowed"
    UNRESOLVED = "the name does not resolve"
    REFUSED = "nothing listens there"
    TIMED_OUT = "no answer in time"
    CERTIFICATE = "the server's certificate is not trusted"
    CLIENT_CERTIFICATE = "the server wants another certificate of ours"
    NO_TLS = "the server does not speak TLS"
    NO_HTTP = "the server does not speak HTTP"
    HUNG_UP = "it hung up without an answer"
    BROKEN = "the answer broke off"


class Unreachable(EngineError):
    def __init__(self, reason: Reason | str, trouble: Trouble = Trouble.BROKEN) -> None:
        super().__init__(reason)
        self.trouble = trouble


class NotReady(EngineError):
    pass


class NotAsked(NotReady):
    pass


class NotFound(EngineError):
    pass


# Unauthorized, by a proxy too; timed out; in conflict, that is known already; too early; too many.
_OF_THE_WAY = (401, 407, 408, 409, 425, 429)


class Refused(EngineError):
    def __init__(self, status: int, reason: Reason | str) -> None:
        super().__init__(reason)
        self.status = status

    @property
    def of_the_request(self) -> bool:
        """It is about what was asked: the same would be refused again. Not so the engine's own trouble, who asks, how
        often or where."""
        return 400 <= self.status < 500 and self.status not in _OF_THE_WAY


class Redirected(Refused):
    """`location` as the server gave it, "" when it gave none. Redirects are not followed."""

    def __init__(self, status: int, location: str) -> None:
        if location:
            reason = EngineReason.REDIRECTS(status=status, location=location[:300])
        else:
            reason = EngineReason.REDIRECTS_ELSEWHERE(status=status)
        super().__init__(status, reason)
        self.location = location


class Malformed(EngineError):
    pass
