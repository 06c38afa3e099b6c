"""Make the engine calls of one cycle concurrently, so that a cluster that hangs delays no other.

Use this only outside transactions. The acts do not use the database; the caller stores their answers afterwards.
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

# Shorter than the claims on the rows for which the calls are made.
CALL_LIMIT_S = 45.0
AT_ONCE = 32


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """A call to a cluster's engine. `limit_s` is the time limit for all requests of `act`."""

    cluster: Cluster
    act: Callable[[FlinkClient], Awaitable[T_co]]
    limit_s: float = CALL_LIMIT_S


def call_all(calls: Sequence[Call[T]], limit_s: float | None = None) -> list[T | EngineError]:
    """Return the answers in the order of the calls. An engine's failure is returned as a value.

    `limit_s` replaces the limit of each call.
    """
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
