"""An asynchronous operation of an engine, whatever it does: begun under an id, then asked for until it has ended.

Flink keeps what became of one for five minutes (`rest.async.store-duration`) in its job manager's memory. `Forgotten`
therefore says nothing of the outcome: look for what the operation should have brought about.
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

ASK_EVERY_S = 0.5
# The engine's clock and ours may differ a little.
CLOCK_SKEW = timedelta(seconds=5)
# FLINK-33522: the savepoint is good although the job failed while it stopped.
_SAVED_BEFORE_FAILING = re.compile(r"StopWithSavepointStoppingException: A savepoint has been created at: (\S+?),")


@dataclass(frozen=True)
class InProgress:
    pass


@dataclass(frozen=True)
class Done(Generic[T_co]):
    """`result`: a savepoint's path, a checkpoint's id, None where the act was all."""

    result: T_co


@dataclass(frozen=True)
class Failed:
    """`reason` is the root cause in a sentence, `trace` what the engine said in full. `usable_location`: the job failed
    while it stopped, but this savepoint was completed before that. `refusal`: our job manager refused it."""

    reason: str
    usable_location: str | None = None
    trace: str = field(default="", repr=False, compare=False)
    refusal: Reason | None = None


@dataclass(frozen=True)
class Forgotten:
    """The engine does not know the id: it never heard of it, or does not keep the result any more."""


Operation = InProgress | Done[T] | Failed | Forgotten


def parse(answer: Fields, result: Callable[[Fields], T]) -> Operation[T]:
    """`result` reads what a successful one brought."""
    if answer.child("status").text("id") != "COMPLETED":
        return InProgress()
    operation = answer.optional_child("operation")
    if operation is None:
        raise Malformed(EngineReason.WITHOUT_RESULT())
    # COMPLETED only says that it ended. Checkpoints spell their failure differently.
    failure = operation.optional_child("failure-cause") or operation.optional_child("failureCause")
    return Done(result(operation)) if failure is None else _failed(failure)


def _failed(failure: Fields) -> Failed:
    trace = failure.optional_text("stack-trace")
    saved = _SAVED_BEFORE_FAILING.search(trace)
    reason = causes.root_cause(trace) or causes.human(failure.optional_text("class"))
    return Failed(reason, saved.group(1) if saved else None, trace, refusal_in(failure.raw.get("refusal")))


def checkpoint_since(asked_at: datetime, history: Iterable[CheckpointStats]) -> Operation[int]:
    """What became of a checkpoint that was asked for then, where the engine forgot the request.

    Its history does not say who asked. It need not: any that was triggered since holds what was asked for.
    """
    since = asked_at - CLOCK_SKEW
    found = {entry.status: entry for entry in history if not entry.is_savepoint and entry.triggered_at >= since}
    if completed := found.get("COMPLETED"):
        return Done(completed.id)
    if "IN_PROGRESS" in found:
        return InProgress()
    failed = found.get("FAILED")
    return Failed(failed.failure_message or f"Checkpoint {failed.id} failed.") if failed else Forgotten()


async def follow(
    ask: Callable[[], Awaitable[Operation[T]]], limit_s: float, every_s: float = ASK_EVERY_S
) -> Operation[T]:
    """Ask until the operation has ended or is forgotten; InProgress when that takes longer than `limit_s`.

    An engine that cannot be asked for a while is asked again; its error is raised when nothing else was heard in time.
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
