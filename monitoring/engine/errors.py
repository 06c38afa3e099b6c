"""What can go wrong between Waymark and an engine: the tree is drawn, and each kind explained, in client.py."""

from __future__ import annotations

from enum import Enum


class EngineError(Exception):
    """`str()` of every one is a sentence for people."""


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
    def __init__(self, message: str, trouble: Trouble = Trouble.BROKEN) -> None:
        super().__init__(message)
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
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def of_the_request(self) -> bool:
        """It is about what was asked: the same would be refused again. Not so the engine's own trouble, who asks, how
        often or where."""
        return 400 <= self.status < 500 and self.status not in _OF_THE_WAY


class Redirected(Refused):
    """`location` as the server gave it, "" when it gave none. Redirects are not followed."""

    def __init__(self, status: int, location: str) -> None:
        where = f"to {location[:300]}" if location else "elsewhere"
        super().__init__(status, f"HTTP {status}: the address redirects {where}; enter the one it leads to.")
        self.location = location


class Malformed(EngineError):
    pass
