"""An SMTP server on loopback that keeps every message as a file: mail to look at where no mail server is configured."""

from __future__ import annotations

import asyncio
import logging
import signal
from datetime import UTC, datetime
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from dashboard.stack.mailbox import keep_mail

_log = logging.getLogger(__name__)
_LARGEST_MESSAGE = 5_000_000  # bytes


class _Keeper:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        content = envelope.content if isinstance(envelope.content, bytes) else str(envelope.content or "").encode()
        mail_id = keep_mail(
            self._directory, content, envelope.mail_from or "", list(envelope.rcpt_tos), datetime.now(UTC)
        )
        _log.info("mail is kept", extra={"id": mail_id, "recipients": ", ".join(envelope.rcpt_tos)})
        return f"250 kept as {mail_id}"


async def sink(host: str, port: int, directory: Path) -> asyncio.Server:
    """A server that keeps what it receives in `directory`; it listens already."""
    keeper = _Keeper(directory)
    return await asyncio.get_running_loop().create_server(
        lambda: SMTP(keeper, hostname="waymark", data_size_limit=_LARGEST_MESSAGE, enable_SMTPUTF8=True), host, port
    )


async def serve(host: str, port: int, directory: Path) -> None:
    """Until SIGTERM or SIGINT."""
    logging.getLogger("mail.log").setLevel(logging.WARNING)  # aiosmtpd tells every command otherwise
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await sink(host, port, directory):
        await stop.wait()
