"""Asynchronous operations of an engine: started under an ID, then polled until they have ended.

Flink keeps the result of an operation for five minutes (`rest.async.store-duration`) in its job manager's memory. So
`Forgotten` says nothing about the outcome: the caller must look for the operation's effect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from monitoring.engine import causes
from monitoring.engine.answers import CheckpointStats
from monitoring.engine.errors import Malformed, NotReady, Unreachable
from monitoring.engine.fields import Fields
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import refusal_in

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

POLL_EVERY_S = 0.5
# The engine's clock and Waymark's may differ a little.
CLOCK_SKEW = timedelta(seconds=5)
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


def checkpoint_since(requested_at: datetime, history: Iterable[CheckpointStats]) -> Operation[int]:
    """Return the status of a checkpoint requested at `requested_at`, whose request the engine forgot.

    The history does not name requests. Any checkpoint triggered since then serves the purpose of the request.
    """
    since = requested_at - CLOCK_SKEW
    found = {entry.status: entry for entry in history if not entry.is_savepoint and entry.triggered_at >= since}
    if completed := found.get("COMPLETED"):
        return Done(completed.id)
    if "IN_PROGRESS" in found:
        return InProgress()
    failed = found.get("FAILED")
    return Failed(failed.failure_message or f"Checkpoint {failed.id} failed.") if failed else Forgotten()


async def follow(
    ask: Callable[[], Awaitable[Operation[T]]], limit_s: float, every_s: float = POLL_EVERY_S
) -> Operation[T]:
    """Poll until the operation has ended or is forgotten. Return InProgress if that takes longer than `limit_s`.

    After Unreachable and NotReady the next poll follows. If the last poll within `limit_s` fails, its error is raised.
    """
    until = asyncio.get_running_loop().time() + limit_s
    while True:
        over = asyncio.get_running_loop().time() + every_s > until
        try:
            answer = await ask()
        except (Unreachable, NotReady):
            if over:
                raise
        else:
            if over or not isinstance(answer, InProgress):
                return answer
        await asyncio.sleep(every_s)
