"""Engine calls of one cycle, all at once: a cluster that hangs holds up only itself.

Called between transactions, never inside one. The acts touch no database; what they answer is settled afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from monitoring.engine.client import FlinkClient, client_for
from monitoring.engine.errors import EngineError, Unreachable
from monitoring.models import Cluster
from monitoring.reasons.engines import EngineReason

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Shorter than the claims of the rows that the calls are made for.
CALL_LIMIT_S = 45.0
AT_ONCE = 32


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """`limit_s`: the time for the whole of it."""

    cluster: Cluster
    act: Callable[[FlinkClient], Awaitable[T_co]]
    limit_s: float = CALL_LIMIT_S


def call_all(calls: Sequence[Call[T]], limit_s: float | None = None) -> list[T | EngineError]:
    """The answers in the order of the calls; an engine's failure is a value among them. `limit_s` replaces each
    call's own."""
    return asyncio.run(_gather(calls, limit_s)) if calls else []


async def _gather(calls: Sequence[Call[T]], limit_s: float | None) -> list[T | EngineError]:
    gate = asyncio.Semaphore(AT_ONCE)
    running: list[Coroutine[None, None, T | EngineError]] = [
        _one(call, gate, limit_s or call.limit_s) for call in calls
    ]
    return list(await asyncio.gather(*running))


async def _one(call: Call[T], gate: asyncio.Semaphore, limit_s: float) -> T | EngineError:
    try:
        async with gate, asyncio.timeout(limit_s), client_for(call.cluster) as client:
            return await call.act(client)
    except EngineError as error:
        return error
    except TimeoutError:
        return Unreachable(EngineReason.CALL_TOO_SLOW(url=call.cluster.rest_url, limit_s=limit_s))
