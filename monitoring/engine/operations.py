"""Asynchronous operations of an engine: started under an ID, then polled until they have ended.

Flink keeps the result of an operation for five minutes (`rest.async.store-duration`) in its job manager's memory. So
`Forgotten` says nothing about the outcome: the caller must look for the operation's effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from monitoring.engine import causes
from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import refusal_in

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# FLINK-33522: the savepoint is complete although the job failed during the stop.
_SAVED_BEFORE_FAILING = re.compile(r"StopWithSavepointStoppingException: A savepoint has been created at: (\S+?),")


@dataclass(frozen=True)
class InProgress:
    pass


@dataclass(frozen=True)
class Done(Generic[T_co]):
    """The operation succeeded. `result` is a savepoint's path, a checkpoint's ID, or None if there is no result."""

    result: T_co


@dataclass(frozen=True)
class Failed:
    """The operation failed. `reason` is the root cause in a sentence, `trace` the engine's whole text.

    `usable_location`: the job failed during a stop, but completed this savepoint before that. `refusal`: the reason
    of Waymark's job manager, if it refused the operation.
    """

    reason: str
    usable_location: str | None = None
    trace: str = field(default="", repr=False, compare=False)
    refusal: Reason | None = None


@dataclass(frozen=True)
class Forgotten:
    """The engine does not know the ID: it never received the request, or no longer keeps the result."""


Operation = InProgress | Done[T] | Failed | Forgotten


def parse(answer: Fields, result: Callable[[Fields], T]) -> Operation[T]:
    """Return the status in the answer. `result` reads the result of a successful operation."""
    if answer.child("status").text("id") != "COMPLETED":
        return InProgress()
    operation = answer.optional_child("operation")
    if operation is None:
        raise Malformed(EngineReason.WITHOUT_RESULT())
    # COMPLETED only means that the operation ended. Checkpoints have another key for the failure.
    failure = operation.optional_child("failure-cause") or operation.optional_child("failureCause")
    return Done(result(operation)) if failure is None else _failed(failure)


def _failed(failure: Fields) -> Failed:
    trace = failure.optional_text("stack-trace")
    saved = _SAVED_BEFORE_FAILING.search(trace)
    reason = causes.root_cause(trace) or causes.human(failure.optional_text("class"))
    return Failed(reason, saved.group(1) if saved else None, trace, refusal_in(failure.raw.get("refusal")))
