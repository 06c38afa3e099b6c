"""`/drivers`: the WebSocket that a driver opens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import typing

from starlette.websockets import WebSocket, WebSocketDisconnect

from checkpointing.jobs.dispatcher import Dispatcher, NotLeading
from checkpointing.jobs.driver_conversation import NotReady
from checkpointing.jobs.driver_link import DriverChannel
from checkpointing.messages import (
    DriverMessage,
    JobManagerMessage,
    MalformedMessage,
    Refused,
    Register,
    Wait,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013
POLICY_VIOLATION = 1008


class DriverHandler:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def connect(self, websocket: WebSocket) -> None:
        """One driver's connection, from its handshake to its end. 1013: look for the leader and come again."""
        await websocket.accept()
        channel = DriverChannel()
        writer = asyncio.create_task(_write(websocket, channel))
        try:
            await self._read(websocket, channel)
        except NotLeading:
            await _close(websocket, TRY_AGAIN_LATER, "not the leader")
        except NotReady as not_ready:
            await _sent_last(channel, writer, Wait(not_ready.session_id))
        except MalformedMessage as error:
            logger.warning("a driver sent what is no message: %s", error)
            await _sent_last(channel, writer, Refused(str(error)))
            await _close(websocket, POLICY_VIOLATION, "malformed message")
        finally:
            channel.mark_gone()
            self._dispatcher.disconnected(channel)
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def _read(self, websocket: WebSocket, channel: DriverChannel) -> None:
        expects_register = True
        async for text in websocket.iter_text():
            message = decode(text)
            if not isinstance(message, typing.get_args(DriverMessage)):
                raise MalformedMessage(f"type: {message.type!r} is not a driver's to send")
            if expects_register and not isinstance(message, Register):
                raise MalformedMessage(f"type: the first message must be register, not {message.type!r}")
            expects_register = False
            self._dispatcher.receive(channel, typing.cast("DriverMessage", message))


async def _write(websocket: WebSocket, channel: DriverChannel) -> None:
    """Send what the channel holds; when the channel was closed, hang up."""
    try:
        async for message in channel.outgoing():
            await websocket.send_text(encode(message))
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError, OSError):
        return  # the reader notices and cleans up


async def _sent_last(channel: DriverChannel, writer: asyncio.Task[None], message: JobManagerMessage) -> None:
    channel.send(message)
    channel.close()
    await asyncio.wait({writer}, timeout=1.0)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError, OSError):
        await websocket.close(code, reason)
