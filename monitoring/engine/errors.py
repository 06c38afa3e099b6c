"""What can go wrong between Waymark and an engine: the tree is drawn, and each kind explained, in client.py."""

from __future__ import annotations


class EngineError(Exception):
    """`str()` of every one is a sentence for people."""


class Unreachable(EngineError):
    pass


class NotReady(EngineError):
    pass


class NotAsked(NotReady):
    pass


class NotFound(EngineError):
    pass


class Refused(EngineError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Malformed(EngineError):
    pass
