"""`/drivers`: the WebSocket for drivers, and the program for a driver that shares no disk with the job manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import typing

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.dispatcher import Dispatcher, NotLeading
from checkpointing.jobs.driver_conversation import NotReady
from checkpointing.jobs.driver_link import DriverChannel
from checkpointing.jobs.launching.processes import SECRET_HEADER
from checkpointing.model.messages import (
    DriverMessage,
    JobManagerMessage,
    MalformedMessage,
    Refused,
    Register,
    Wait,
    decode,
    encode,
)
from checkpointing.rest.errors import NOT_FOUND, RestError
from checkpointing.rest.jobs import job_of
from checkpointing.rest.requests import path_id, path_number

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013
POLICY_VIOLATION = 1008


class DriverHandler:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def connect(self, websocket: WebSocket) -> None:
        """Serve one driver's connection until its end. Code 1013: the driver must look for the leader and retry."""
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
            logger.warning("a driver sent an invalid message: %s", error)
            await _sent_last(channel, writer, Refused(str(error)))
            await _close(websocket, POLICY_VIOLATION, "malformed message")
        finally:
            channel.mark_gone()
            self._dispatcher.disconnected(channel)
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def program(self, request: Request) -> Response:
        """Return the job's program to a driver that sends the secret of the current attempt."""
        job_id, number = path_id(request, "jobid"), path_number(request, "attempt")
        attempt = job_of(self._dispatcher, request).record.attempt
        secret = request.headers.get(SECRET_HEADER, "")
        if attempt is None or attempt.number != number or not secret or not attempt.record.has_secret(secret):
            raise RestError(403, f"Attempt {number} of job {job_id}: the secret of its current driver is needed.")
        services = self._dispatcher.services
        directory = JobDirectory(services.jobs_directory, job_id)
        try:
            content = await services.io_of(job_id).run(lambda: directory.program().read_bytes())
        except FileNotFoundError as error:
            raise RestError(404, str(error), NOT_FOUND) from error
        return Response(content, media_type="application/octet-stream")

    async def _read(self, websocket: WebSocket, channel: DriverChannel) -> None:
        expects_register = True
        async for text in websocket.iter_text():
            message = decode(text)
            if not isinstance(message, typing.get_args(DriverMessage)):
                raise MalformedMessage(f"type: {message.type!r} is not a message that a driver may send")
            if expects_register and not isinstance(message, Register):
                raise MalformedMessage(f"type: the first message must be register, not {message.type!r}")
            expects_register = False
            self._dispatcher.receive(channel, typing.cast("DriverMessage", message))


async def _write(websocket: WebSocket, channel: DriverChannel) -> None:
    """Send the channel's messages. Close the connection after the channel was closed."""
    try:
        async for message in channel.outgoing():
            await websocket.send_text(encode(message))
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError, OSError):
        return  # the reader of the log notices it and cleans up


async def _sent_last(channel: DriverChannel, writer: asyncio.Task[None], message: JobManagerMessage) -> None:
    channel.send(message)
    channel.close()
    await asyncio.wait({writer}, timeout=1.0)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError, OSError):
        await websocket.close(code, reason)
