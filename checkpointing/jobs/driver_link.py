"""The job manager's end of a driver's connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from checkpointing.model.messages import JobManagerMessage


class DriverChannel:
    """Sends messages to one connected driver, in order, without blocking. After `close` it does nothing."""

    def __init__(self) -> None:
        self._outgoing: asyncio.Queue[JobManagerMessage | None] = asyncio.Queue()
        self._closing = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, message: JobManagerMessage) -> None:
        if not self._closing:
            self._outgoing.put_nowait(message)

    def close(self) -> None:
        """Close the connection after all earlier messages are sent."""
        if not self._closing:
            self._closing = True
            self._outgoing.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[JobManagerMessage]:
        """Yield the messages for the connection's writer until the channel is closed."""
        while (message := await self._outgoing.get()) is not None:
            yield message

    def mark_gone(self) -> None:
        """Mark the connection as down. Everything that was received on it has been handled."""
        self._closing = True
        if not self.gone.done():
            self.gone.set_result(None)


class DriverGateway:
    """The connection to the job's current driver.

    Messages are dropped while the driver is disconnected, and once this job manager no longer `leads`.
    """

    def __init__(self, session_id: str, leads: Callable[[], bool]) -> None:
        self._session_id = session_id
        self._leads = leads
        self.channel: DriverChannel | None = None

    @property
    def session_id(self) -> str:
        return self._session_id

    def send(self, message: JobManagerMessage) -> None:
        if self.channel is not None and self._leads():
            self.channel.send(message)
