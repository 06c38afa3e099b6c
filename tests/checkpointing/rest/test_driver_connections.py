from __future__ import annotations

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from checkpointing.model.messages import DriverState, Heartbeat, Refused, Register, decode, encode
from tests.checkpointing.jobs.running_job_manager import RunningJobManager


def dial(manager: RunningJobManager) -> connect:
    return connect(manager.address.replace("http", "ws") + "/drivers", proxy=None)


async def refusal(connection: ClientConnection) -> str:
    message = decode(await connection.recv())
    assert isinstance(message, Refused)
    return message.reason


@pytest.mark.parametrize("text", ["no json", "{}", '{"type": "registered"}', encode(Heartbeat("s", "0" * 32, 1, {}))])
async def test_a_first_message_that_is_not_register_is_refused_and_hung_up(
    manager: RunningJobManager, text: str
) -> None:
    async with dial(manager) as connection:
        await connection.send(text)

        assert await refusal(connection)
        with pytest.raises(ConnectionClosed):
            await connection.recv()


async def test_a_driver_of_an_unknown_job_is_refused(manager: RunningJobManager) -> None:
    async with dial(manager) as connection:
        await connection.send(encode(Register("0" * 32, 1, 1, DriverState.RUNNING, (), {})))

        assert "does not run here" in await refusal(connection)


async def test_an_attempt_that_was_never_started_is_refused(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    async with dial(manager) as connection:
        await connection.send(encode(Register(job_id, 7, 1, DriverState.RUNNING, (), {})))

        assert "attempt 7 is refused: the current attempt is 1" in await refusal(connection)
    assert await manager.status(job_id) == "RUNNING"
