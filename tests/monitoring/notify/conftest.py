"""Real receivers of notifications: an SMTP server and an HTTP server that misbehave on request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message as Mail

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass
class MailSink:
    """An SMTP server that keeps its mails. It sends `answer` after the data, and `recipient_answer` after RCPT."""

    answer: str = "250 OK"
    recipient_answer: str = ""
    mails: list[Mail] = field(default_factory=list)
    port: int = 0

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if self.recipient_answer:
            return self.recipient_answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content or b""))
        return self.answer


@pytest.fixture
def mail_sink(settings) -> Iterator[MailSink]:
    sink = MailSink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        sink.port = free.getsockname()[1]
    controller = Controller(sink, hostname="127.0.0.1", port=sink.port, ready_timeout=60)
    controller.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
    yield sink
    controller.stop()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield the port of a server that accepts connections but never sends anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)
    for connection in taken:
        connection.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
