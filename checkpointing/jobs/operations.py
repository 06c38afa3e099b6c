"""Asynchronous operations with a `triggerId`: each starts once, and its result is kept for a while (Flink's PT5M)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from checkpointing.clock import Clock

KEPT_S = 300.0


class UnknownOperation(LookupError):
    """The operation was never triggered here, or its result has expired."""


@dataclass(frozen=True)
class InProgress:
    pass


@dataclass(frozen=True)
class Succeeded:
    """The operation succeeded. `result` has the form of Flink's JSON."""

    result: dict[str, Any]


@dataclass(frozen=True)
class OperationFailed:
    error: BaseException


Outcome = InProgress | Succeeded | OperationFailed
Key = tuple[str, ...]


@dataclass
class _Operation:
    task: asyncio.Task[dict[str, Any]]
    completed_s: float | None = None


class Operations:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._operations: dict[Key, _Operation] = {}

    def start(self, key: Key, begin: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> None:
        """Begin the operation unless one with this key is known. A repeated trigger changes nothing."""
        self._forget_old()
        if key in self._operations:
            return
        operation = _Operation(asyncio.create_task(begin()))
        self._operations[key] = operation
        operation.task.add_done_callback(lambda task: self._completed(operation, task))

    def outcome(self, key: Key) -> Outcome:
        """Return the outcome of the operation. Raise UnknownOperation if there is none."""
        self._forget_old()
        if key not in self._operations:
            raise UnknownOperation(" ".join(key))
        task = self._operations[key].task
        if not task.done():
            return InProgress()
        if task.cancelled():
            return OperationFailed(RuntimeError("The job manager lost its leadership."))
        error = task.exception()
        return Succeeded(task.result()) if error is None else OperationFailed(error)

    def cancel_all(self) -> None:
        for operation in self._operations.values():
            operation.task.cancel()

    def _completed(self, operation: _Operation, task: asyncio.Task[dict[str, Any]]) -> None:
        operation.completed_s = self._clock.monotonic()
        if not task.cancelled():
            task.exception()  # marks the error as retrieved; `outcome` may never be called

    def _forget_old(self) -> None:
        limit = self._clock.monotonic() - KEPT_S
        self._operations = {
            key: operation
            for key, operation in self._operations.items()
            if operation.completed_s is None or operation.completed_s > limit
        }
