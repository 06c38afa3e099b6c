"""An SMTP server on loopback that stores every message as a file, for installations without a mail server."""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from dashboard.stack.mailbox import store_mail

_log = logging.getLogger(__name__)
_LARGEST_MESSAGE = 5_000_000  # bytes


@dataclass(frozen=True)
class LogIn:
    """The user name and password of the mail sink, which are needed because every local account can connect."""

    user: str
    password: str = field(repr=False)

    def check(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: Any) -> AuthResult:
        """Check the given user name and password. aiosmtpd calls this method for AUTH PLAIN and AUTH LOGIN."""
        user, password = (given.login, given.password) if isinstance(given, LoginPassword) else (b"", b"")
        is_right = hmac.compare_digest(user, self.user.encode()) & hmac.compare_digest(password, self.password.encode())
        return AuthResult(success=is_right, handled=False)


class _MailHandler:
    def __init__(self, directory: Path, log_in: LogIn | None) -> None:
        self._directory = directory
        self._log_in = log_in

    async def handle_MAIL(  # noqa: N802 (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self._log_in is not None and not session.authenticated:
            return "530 5.7.0 Authentication required"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        content = envelope.content if isinstance(envelope.content, bytes) else str(envelope.content or "").encode()
        mail_id = store_mail(
            self._directory, content, envelope.mail_from or "", list(envelope.rcpt_tos), datetime.now(UTC)
        )
        _log.info("mail is kept", extra={"id": mail_id, "recipients": ", ".join(envelope.rcpt_tos)})
        return f"250 kept as {mail_id}"


async def sink(host: str, port: int, directory: Path, log_in: LogIn | None = None) -> asyncio.Server:
    """Return a listening server that stores messages in `directory`. Without `log_in`, every client may send."""
    keeper = _MailHandler(directory, log_in)
    guard = {"authenticator": log_in.check, "auth_require_tls": False} if log_in else {}
    return await asyncio.get_running_loop().create_server(
        lambda: SMTP(keeper, hostname="waymark", data_size_limit=_LARGEST_MESSAGE, enable_SMTPUTF8=True, **guard),
        host,
        port,
    )


async def serve(host: str, port: int, directory: Path, log_in: LogIn | None = None) -> None:
    """Run the mail sink until SIGTERM or SIGINT."""
    logging.getLogger("mail.log").setLevel(logging.WARNING)  # otherwise aiosmtpd logs every command
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await sink(host, port, directory, log_in):
        await stop.wait()
