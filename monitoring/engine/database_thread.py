"""Use the database on behalf of an event loop: Django's connections belong to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from django.db import connection

T = TypeVar("T")


class InDatabaseThread(Protocol):
    """Runs a function where the database may be used, and returns its result."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


async def in_database_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which gets a separate connection."""

    def closing() -> T:
        try:
            return work()
        finally:
            connection.close()

    return await asyncio.to_thread(closing)
