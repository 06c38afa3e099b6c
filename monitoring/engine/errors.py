# ruff: noqa: N818  (they name what happened, as the sentences that use them do)
"""What can go wrong between Waymark and an engine.

EngineError
├── Unreachable   no answer, or a broken one: refused, timed out, cut short. A command may have been carried out
├── NotReady      it answers, but has no leader or is still starting: says nothing about any job
├── NotFound      404: no such job, checkpoint, operation or endpoint
├── Refused       any other error answer, with its status
└── Malformed     an answer that is not what the API promises; names the field
"""

from __future__ import annotations


class EngineError(Exception):
    """`str()` of every one is a sentence for people."""


class Unreachable(EngineError):
    pass


class NotReady(EngineError):
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
